# Hosts, placement, manifests and launchers.
find_package(nlohmann_json 3 REQUIRED)
mx_add_test(mxrun_hosts_test SOURCES hosts_test.cc placement_test.cc DEPS mx::hosts SERIAL)
mx_add_test(mxrun_manifest_test SOURCES manifest_test.cc DEPS mx::hosts nlohmann_json::nlohmann_json SERIAL)
mx_add_test(mxrun_launchers_test SOURCES launchers_test.cc DEPS mx::hosts SERIAL)
mx_add_test(mxrun_select_test SOURCES select_test.cc DEPS mx::mxrun SERIAL)
foreach(name ssh mpi slurm namespaces k8s completion)
  if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/launchers_${name}_test.py)
    add_test(NAME Mxrun.launchers_${name} COMMAND_EXPAND_LISTS COMMAND ${Python3_EXECUTABLE}
      ${CMAKE_CURRENT_LIST_DIR}/launchers_${name}_test.py $<TARGET_FILE:mxrun>
      $<$<STREQUAL:${name},namespaces>:$<TARGET_FILE:mxrun_rank_program>>)
    set_tests_properties(Mxrun.launchers_${name} PROPERTIES LABELS mxrun TIMEOUT 600)
    if(MX_SANITIZE)
      set_tests_properties(Mxrun.launchers_${name} PROPERTIES ENVIRONMENT MX_TEST_SHORT=1)
    endif()
  endif()
endforeach()
