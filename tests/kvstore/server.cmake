# Parameter servers: messages, the state machine, and the stores over real connections.
mx_add_test(kvstore_server_test
  SOURCES
    server_machine_test.cc
    server_store_test.cc
    server_wire_test.cc
  DEPS mx::kvstore)

# Whole jobs.
add_executable(kvstore_server_program server_program.cc)
set_target_properties(kvstore_server_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/programs)
target_link_libraries(kvstore_server_program PRIVATE mx::kvstore mx_flags)
add_executable(kvstore_steps_program steps_program.cc)
set_target_properties(kvstore_steps_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/programs)
target_link_libraries(kvstore_steps_program PRIVATE mx::kvstore mx_flags)
if(Python3_EXECUTABLE AND MX_MXRUN)
  add_test(NAME Kvstore.steps COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/steps_test.py
    $<TARGET_FILE:mxrun> $<TARGET_FILE:kvstore_steps_program>)
  set_tests_properties(Kvstore.steps PROPERTIES LABELS mxrun TIMEOUT 600)
  if(MX_SANITIZE)
    set_tests_properties(Kvstore.steps PROPERTIES ENVIRONMENT MX_TEST_SHORT=1)
  endif()
  add_test(NAME Kvstore.server_processes COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/server_processes_test.py
    $<TARGET_FILE:mxrun> $<TARGET_FILE:kvstore_server_program>)
  set_tests_properties(Kvstore.server_processes PROPERTIES LABELS mxrun TIMEOUT 600)
endif()
