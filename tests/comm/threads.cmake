mx_add_test(comm_threads_test
  SOURCES
    conformance.cc
    conformance_failures.cc
    threads/conformance_test.cc
  DEPS mx::comm)
