mx_add_test(comm_core_test
  SOURCES
    core/fold_test.cc
    core/queued_communicator_test.cc
  DEPS mx::comm)
