# Run after a test program was built, by mx_discover_suites(): asks PROGRAM for its suites and writes one test for each into
# OUTPUT, with TIMEOUT seconds and LABEL.
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listing RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests ended with ${status}:\n${listing}")
endif()
string(REPLACE ";" "," listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")
set(text "")
foreach(line IN LISTS lines)
  # Suites begin at the margin and end in a dot, "Modes/Push." or "Typed<0>.  # TypeParam = int"; tests are indented.
  if(line MATCHES "^([^ ]+)\\.( |$)")
    set(suite "${CMAKE_MATCH_1}")
    string(APPEND text "add_test([=[${suite}]=] [=[${PROGRAM}]=] [=[--gtest_filter=${suite}.*]=])\n"
      "set_tests_properties([=[${suite}]=] PROPERTIES TIMEOUT ${TIMEOUT} LABELS [=[${LABEL}]=])\n")
  endif()
endforeach()
if(text STREQUAL "")
  message(FATAL_ERROR "${PROGRAM} has no tests:\n${listing}")
endif()
file(WRITE ${OUTPUT} "${text}")
