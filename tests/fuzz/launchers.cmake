# Hosts and lists of nodes, as users and schedulers write them.
mx_add_test(fuzz_text_replay_test SOURCES text_entries.cc text_replay_test.cc DEPS mx::hosts SERIAL)
target_compile_definitions(fuzz_text_replay_test PRIVATE MX_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/corpus")

add_fuzzers(READERS hostfile host_list node_list HEADER tests/fuzz/text_entries.h SOURCES text_entries.cc DEPS mx::hosts)

# What the processes of mxrun tell each other, and the file of options.
mx_add_test(fuzz_mxrun_replay_test SOURCES mxrun_entries.cc mxrun_replay_test.cc DEPS mx::mxrun SERIAL)
target_compile_definitions(fuzz_mxrun_replay_test PRIVATE MX_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/corpus")

add_fuzzers(READERS plan message_to_agent message_from_agent job_status config_file agent_frames agent_pieces lost_process shm_offer
  HEADER tests/fuzz/mxrun_entries.h SOURCES mxrun_entries.cc DEPS mx::mxrun)
