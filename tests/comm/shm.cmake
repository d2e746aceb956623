mx_add_test(comm_shm_test
  SOURCES
    shm/bootstrap_test.cc
    shm/conformance_test.cc
    shm/equality_test.cc
    shm/forked_ranks.cc
    shm/group_test.cc
    shm/peers_test.cc
    shm/process_test.cc
  DEPS mx::comm mx_comm_conformance)
