mx_add_test(comm_hosts_test
  SOURCES
    hosts/conformance_test.cc
    hosts/connect_test.cc
    hosts/rings_test.cc
  DEPS mx::comm mx_comm_conformance)
