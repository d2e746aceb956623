# The suite of all rendezvous. The one over MPI runs it, too.
add_library(mx_rendezvous_conformance OBJECT rendezvous/conformance.cc)
target_link_libraries(mx_rendezvous_conformance PUBLIC mx::comm GTest::gtest PRIVATE mx_flags)
mx_compile_fast(mx_rendezvous_conformance)
mx_test_headers_once(mx_rendezvous_conformance mx::comm)

mx_add_test(comm_rendezvous_test
  SOURCES
    rendezvous/departures_test.cc
    rendezvous/frames_test.cc
    rendezvous/group_failures_test.cc
    rendezvous/machine_test.cc
    rendezvous/memory_test.cc
    rendezvous/process_test.cc
    rendezvous/rendezvous_conformance_test.cc
    rendezvous/server_test.cc
    rendezvous/watches_test.cc
  DEPS mx::comm mx_rendezvous_conformance)
