# The program mxrun, run as people run it.
mx_add_test(mxrun_parts_test SOURCES parts_test.cc first_cause_test.cc DEPS mx::mxrun SERIAL)
mx_add_test(mxrun_supervisor_test SOURCES supervisor_test.cc DEPS mx::mxrun)

add_executable(mxrun_rank_program rank_program.cc)
target_link_libraries(mxrun_rank_program PRIVATE mx::comm mx_flags)
set_target_properties(mxrun_rank_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
mx_compile_fast(mxrun_rank_program)
foreach(name usage environment output failures kills ranks)
  if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/${name}_test.py)
    add_test(NAME Mxrun.${name} COMMAND_EXPAND_LISTS COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/${name}_test.py $<TARGET_FILE:mxrun>
      $<$<STREQUAL:${name},ranks>:$<TARGET_FILE:mxrun_rank_program>>)
    set_tests_properties(Mxrun.${name} PROPERTIES LABELS mxrun TIMEOUT 600)
    if(MX_SANITIZE)
      set_tests_properties(Mxrun.${name} PROPERTIES ENVIRONMENT MX_TEST_SHORT=1)
    endif()
  endif()
endforeach()
