mx_add_test(mxrun_hosts_test SOURCES hosts_test.cc placement_test.cc DEPS mx::hosts SERIAL)
