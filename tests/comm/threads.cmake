mx_add_test(comm_threads_test
  SOURCES
    core/algorithms_test.cc
    core/cost_model_test.cc
    core/parts_test.cc
    threads/call_comparison_test.cc
    threads/conformance_test.cc
    threads/library_group.cc
    threads/transport_test.cc
  DEPS mx::comm mx_comm_conformance)
