mx_add_test(comm_tcp_test SOURCES tcp/place_test.cc tcp/connect_test.cc tcp/tcp_transport_test.cc DEPS mx::comm)
