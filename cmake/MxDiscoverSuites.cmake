# Runs after a test program was built by mx_discover_suites(): asks PROGRAM for its suites and writes one test for each of
# them into OUTPUT, with TIMEOUT seconds and LABEL. A suite in ALONE becomes one test per test case instead. No test counts
# as skipped: ctest would recognise a skip by the output, which would hide failures in the same suite.
cmake_minimum_required(VERSION 3.24)  # IN_LIST
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listing RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests ended with ${status}:\n${listing}")
endif()
string(REPLACE ";" "," listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")
set(text "")
function(add_filtered name filter)
  string(APPEND text "add_test([=[${name}]=] [=[${PROGRAM}]=] [=[--gtest_filter=${filter}]=])\n"
    "set_tests_properties([=[${name}]=] PROPERTIES TIMEOUT ${TIMEOUT} LABELS [=[${LABEL}]=])\n")
  set(text "${text}" PARENT_SCOPE)
endfunction()
foreach(line IN LISTS lines)
  # Names of suites start at the margin and end in a dot, as in "Modes/Push." or "Typed<0>.  # TypeParam =
  # int"; names of tests are indented.
  if(line MATCHES "^([^ ]+)\\.( |$)")
    set(suite "${CMAKE_MATCH_1}")
    if(NOT suite IN_LIST ALONE)
      add_filtered("${suite}" "${suite}.*")
    endif()
  elseif(line MATCHES "^  ([^ ]+)" AND suite IN_LIST ALONE)
    add_filtered("${suite}.${CMAKE_MATCH_1}" "${suite}.${CMAKE_MATCH_1}")
  endif()
endforeach()
if(text STREQUAL "")
  message(FATAL_ERROR "${PROGRAM} has no tests:\n${listing}")
endif()
file(WRITE ${OUTPUT} "${text}")
