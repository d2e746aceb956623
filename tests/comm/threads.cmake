mx_add_test(comm_threads_test
  SOURCES
    conformance.cc
    threads/conformance_test.cc
  DEPS mx::comm)
