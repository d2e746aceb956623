# Parameter servers: messages, the state machine, and the stores over real connections.
mx_add_test(kvstore_server_test
  SOURCES
    server_contract_test.cc
    server_machine_test.cc
    server_order_test.cc
    server_store_test.cc
    server_wire_test.cc
  DEPS mx::kvstore)

# Whole jobs.
foreach(name server steps mistakes devices)
  add_executable(kvstore_${name}_program ${name}_program.cc)
  set_target_properties(kvstore_${name}_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/programs)
  target_link_libraries(kvstore_${name}_program PRIVATE mx::kvstore mx_flags)
endforeach()
if(Python3_EXECUTABLE AND MX_MXRUN)
  foreach(test server_processes/server steps/steps mistakes/mistakes devices/devices)
    string(REGEX MATCH "(.*)/(.*)" whole ${test})
    set(name ${CMAKE_MATCH_1})
    set(program kvstore_${CMAKE_MATCH_2}_program)
    add_test(NAME Kvstore.${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/${name}_test.py $<TARGET_FILE:mxrun>
      $<TARGET_FILE:${program}>)
    set_tests_properties(Kvstore.${name} PROPERTIES LABELS mxrun TIMEOUT 600 COST 2)
    if(name STREQUAL "steps")
      # A process that gets no processor for 1.5 s counts as lost.
      set_tests_properties(Kvstore.steps PROPERTIES PROCESSORS 2)
    endif()
    if(MX_SANITIZE)
      set_tests_properties(Kvstore.${name} PROPERTIES ENVIRONMENT MX_TEST_SHORT=1)
    endif()
  endforeach()
endif()
