list(APPEND mx_comm_sources module.cc)
include(GNUInstallDirs)
set_source_files_properties(module.cc PROPERTIES
  COMPILE_DEFINITIONS "MX_MODULE_FOLDER=\"${CMAKE_INSTALL_FULL_LIBDIR}/mx\"" SKIP_UNITY_BUILD_INCLUSION ON)
