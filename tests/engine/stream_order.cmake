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
