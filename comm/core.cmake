list(APPEND mx_comm_sources fold.cc queued_communicator.cc)
