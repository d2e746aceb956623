# Takes minutes under a sanitizer, and finds there what it finds everywhere: one thread runs all steps of the model.
if(MX_SANITIZE)
  return()
endif()
mx_add_test(model_check_test
  SOURCES
    model/explorer.cc
    model/fiber.cc
    model_check_explorer_test.cc
    model_check_protocols_test.cc
    model_check_queue_test.cc
    model_check_ring_test.cc
  DEPS mx::engine
  LABELS model
  OPTIMISED)
