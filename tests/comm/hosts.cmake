mx_add_test(comm_hosts_test
  SOURCES
    conformance.cc
    conformance_ends.cc
    conformance_failures.cc
    hosts/conformance_test.cc
    hosts/connect_test.cc
    hosts/rings_test.cc
  DEPS mx::comm)
