mx_add_test(comm_threads_test
  SOURCES
    conformance.cc
    conformance_ends.cc
    conformance_failures.cc
    core/algorithms_test.cc
    core/cost_model_test.cc
    core/parts_test.cc
    threads/call_comparison_test.cc
    threads/conformance_test.cc
    threads/library_group.cc
    threads/transport_test.cc
  DEPS mx::comm OPTIMISED)
