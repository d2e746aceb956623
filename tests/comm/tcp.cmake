mx_add_test(comm_tcp_test SOURCES tcp/acceptor_test.cc tcp/place_test.cc tcp/connect_test.cc tcp/job_test.cc tcp/tcp_transport_test.cc tcp/world_process_test.cc DEPS mx::comm)
mx_add_test(comm_tcp_conformance_test
  SOURCES
    tcp/conformance_test.cc
  DEPS mx::comm mx_comm_conformance)

mx_add_test(comm_call_alloc_test SOURCES tcp/call_alloc_test.cc DEPS mx::comm)
