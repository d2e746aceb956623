# Messages between workers and servers, and what a server makes of them.
mx_add_test(fuzz_kvstore_replay_test SOURCES kvstore_entries.cc kvstore_replay_test.cc DEPS mx::kvstore SERIAL)
target_compile_definitions(fuzz_kvstore_replay_test PRIVATE MX_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/corpus")

if(MX_FUZZ)
  foreach(target kvstore_message kvstore_machine)
    add_executable(${target}_fuzz fuzz_main.cc kvstore_entries.cc)
    set_target_properties(${target}_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_compile_definitions(${target}_fuzz PRIVATE MX_FUZZ_ENTRY=${target} MX_FUZZ_HEADER="tests/fuzz/kvstore_entries.h")
    target_link_libraries(${target}_fuzz PRIVATE mx::kvstore mx_flags)
    target_link_options(${target}_fuzz PRIVATE -fsanitize=fuzzer)
  endforeach()
endif()
