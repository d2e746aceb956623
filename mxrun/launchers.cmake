# Hosts, placement, manifests and the processes of launchers: a library that only mxrun and the tests link.
# These sources need the library above it, and so belong to that.
set(mx_launcher_sources completion.cc launchers/agent_side.cc launchers/check.cc launchers/select.cc)
find_package(nlohmann_json 3 REQUIRED)
add_library(mx_hosts STATIC
  ${CMAKE_CURRENT_LIST_DIR}/hosts/hosts.cc
  ${CMAKE_CURRENT_LIST_DIR}/hosts/node_list.cc
  ${CMAKE_CURRENT_LIST_DIR}/hosts/placement.cc
  ${CMAKE_CURRENT_LIST_DIR}/hosts/text.cc
  ${CMAKE_CURRENT_LIST_DIR}/launchers/carrier_output.cc
  ${CMAKE_CURRENT_LIST_DIR}/launchers/commands.cc
  ${CMAKE_CURRENT_LIST_DIR}/launchers/open_files.cc
  ${CMAKE_CURRENT_LIST_DIR}/launchers/rendezvous_channel.cc
  ${CMAKE_CURRENT_LIST_DIR}/launchers/session.cc
  ${CMAKE_CURRENT_LIST_DIR}/launchers/write_signals.cc
  ${CMAKE_CURRENT_LIST_DIR}/manifest/kubernetes.cc
  ${CMAKE_CURRENT_LIST_DIR}/manifest/yaml.cc
  ${CMAKE_CURRENT_LIST_DIR}/output.cc)
add_library(mx::hosts ALIAS mx_hosts)
target_include_directories(mx_hosts PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_features(mx_hosts PUBLIC cxx_std_20)
target_link_libraries(mx_hosts PUBLIC mx::comm PRIVATE nlohmann_json::nlohmann_json mx_flags)
if(MX_UNITY)
  get_target_property(mx_hosts_sources mx_hosts SOURCES)
  mx_unite(mx_hosts ${mx_hosts_sources})
endif()
