mx_add_test(stream_order_test
  SOURCES
    stream_order_errors_test.cc
    stream_order_random_test.cc
    stream_order_rig.cc
    stream_order_test.cc
  DEPS mx::engine)

mx_add_test(stream_order_alloc_test
  SOURCES stream_order_alloc_test.cc
  DEPS mx::engine)

# The engine on streams: every kind of device, one suite.
if(MX_HAVE_CUDA)
  set(stream_ops_cuda ../cuda/suites/stream_kernels.cu ../cuda/suites/stream_ops.cc)
else()
  set(stream_ops_cuda ../support/stream_ops_nocuda.cc)
endif()
mx_add_test(stream_suite_test
  SOURCES
    segment_graph_errors_test.cc
    segment_graph_test.cc
    stream_suite.cc
    stream_suite_errors.cc
    stream_suite_graphs.cc
    stream_suite_test.cc
    ../support/stream_ops.cc
    ${stream_ops_cuda}
  DEPS mx::engine)
if(MX_HAVE_CUDA)
  target_link_libraries(stream_suite_test PRIVATE CUDA::cudart_static)
  # The headers are C++20; the sanitizers are linked by the C++ compiler.
  set_target_properties(stream_suite_test PROPERTIES CUDA_STANDARD 20 LINKER_LANGUAGE CXX)
endif()
