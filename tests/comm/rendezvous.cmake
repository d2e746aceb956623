mx_add_test(comm_rendezvous_test
  SOURCES
    rendezvous/departures_test.cc
    rendezvous/frames_test.cc
    rendezvous/machine_test.cc
    rendezvous/memory_test.cc
    rendezvous/process_test.cc
    rendezvous/rendezvous_conformance_test.cc
    rendezvous/server_test.cc
    rendezvous/watches_test.cc
  DEPS mx::comm)
