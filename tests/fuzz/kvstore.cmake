# Messages between workers and servers, and what a server makes of them.
mx_add_test(fuzz_kvstore_replay_test SOURCES kvstore_entries.cc kvstore_replay_test.cc DEPS mx::kvstore SERIAL)
target_compile_definitions(fuzz_kvstore_replay_test PRIVATE MX_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/corpus")

add_fuzzers(READERS kvstore_message kvstore_machine HEADER tests/fuzz/kvstore_entries.h SOURCES kvstore_entries.cc DEPS mx::kvstore)
