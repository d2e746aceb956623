mx_add_test(comm_shm_test
  SOURCES
    conformance.cc
    conformance_ends.cc
    conformance_failures.cc
    shm/bootstrap_test.cc
    shm/conformance_test.cc
    shm/equality_test.cc
    shm/forked_ranks.cc
    shm/peers_test.cc
    shm/process_test.cc
  DEPS mx::comm)
