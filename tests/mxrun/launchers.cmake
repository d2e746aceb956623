mx_add_test(mxrun_hosts_test SOURCES hosts_test.cc placement_test.cc DEPS mx::hosts SERIAL)
find_package(nlohmann_json 3 REQUIRED)
mx_add_test(mxrun_manifest_test SOURCES manifest_test.cc DEPS mx::hosts nlohmann_json::nlohmann_json SERIAL)
mx_add_test(mxrun_launchers_test SOURCES launchers_test.cc DEPS mx::hosts SERIAL)
