mx_add_test(model_check_test
  SOURCES
    model/explorer.cc
    model/fiber.cc
    model_check_ring_test.cc
  DEPS mx::engine
  LABELS model)
