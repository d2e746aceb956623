list(APPEND mx_comm_sources threads/thread_group.cc threads/thread_transport.cc)
