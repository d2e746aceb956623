# Hosts and lists of nodes, as users and schedulers write them.
mx_add_test(fuzz_text_replay_test SOURCES text_entries.cc text_replay_test.cc DEPS mx::hosts SERIAL)
target_compile_definitions(fuzz_text_replay_test PRIVATE MX_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/corpus")

if(MX_FUZZ)
  foreach(parser hostfile host_list node_list)
    add_executable(${parser}_fuzz fuzz_main.cc text_entries.cc)
    set_target_properties(${parser}_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_compile_definitions(${parser}_fuzz PRIVATE MX_FUZZ_ENTRY=${parser} MX_FUZZ_HEADER="tests/fuzz/text_entries.h")
    target_link_libraries(${parser}_fuzz PRIVATE mx::hosts mx_flags)
    target_link_options(${parser}_fuzz PRIVATE -fsanitize=fuzzer)
  endforeach()
endif()
