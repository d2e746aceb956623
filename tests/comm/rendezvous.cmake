mx_add_test(comm_rendezvous_test
  SOURCES
    rendezvous/rendezvous_conformance_test.cc
  DEPS mx::comm)
