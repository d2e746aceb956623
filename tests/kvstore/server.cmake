# Parameter servers: messages, the state machine, and the stores over real connections.
mx_add_test(kvstore_server_test
  SOURCES
    server_machine_test.cc
    server_store_test.cc
    server_wire_test.cc
  DEPS mx::kvstore)
