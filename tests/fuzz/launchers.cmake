# Hosts and lists of nodes, as users and schedulers write them.
mx_add_test(fuzz_text_replay_test SOURCES text_entries.cc text_replay_test.cc DEPS mx::hosts SERIAL)
target_compile_definitions(fuzz_text_replay_test PRIVATE MX_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/corpus")

add_fuzzers(READERS hostfile host_list node_list HEADER tests/fuzz/text_entries.h SOURCES text_entries.cc DEPS mx::hosts)
