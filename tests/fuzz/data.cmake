# Tables, RecordIO, images and tokenisers.
mx_add_test(fuzz_data_replay_test SOURCES data_entries.cc data_replay_test.cc DEPS mx::data SERIAL)
target_compile_definitions(fuzz_data_replay_test PRIVATE MX_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/corpus")

add_fuzzers(READERS csv libsvm cifar recordio jpeg png tokenizer HEADER tests/fuzz/data_entries.h SOURCES data_entries.cc
  DEPS mx::data)
