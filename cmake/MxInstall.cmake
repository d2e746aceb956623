# Install and export. After `cmake --install`, find_package(mx) defines one target per layer (mx::engine, ...)
# and mx::mx, which links all of them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(mx_libraries GLOBAL PROPERTY MX_LIBRARIES)

add_library(mx_mx INTERFACE)
add_library(mx::mx ALIAS mx_mx)
set_target_properties(mx_mx PROPERTIES EXPORT_NAME mx)
target_link_libraries(mx_mx INTERFACE ${mx_libraries})

install(TARGETS ${mx_libraries} mx_mx EXPORT mxTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The installed headers keep their folders below include/mxrun, so that "engine/engine.h" and <mx/mx.h>
# resolve there as they do in the tree.
foreach(layer engine comm ndarray operators optim executor kvstore nn)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${layer})
    # operators/samples/ is only for tests and benchmarks.
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${layer} DESTINATION include/mxrun FILES_MATCHING PATTERN "*.h"
      PATTERN "samples" EXCLUDE)
  endif()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mx DESTINATION include/mxrun FILES_MATCHING PATTERN "*.h")

set(mx_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mx)
install(EXPORT mxTargets NAMESPACE mx:: DESTINATION ${mx_package_dir})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/mxConfig.cmake.in ${PROJECT_BINARY_DIR}/mxConfig.cmake
  INSTALL_DESTINATION ${mx_package_dir})
# Until 1.0, a minor version may change the public interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mxConfig.cmake ${PROJECT_BINARY_DIR}/mxConfigVersion.cmake
  DESTINATION ${mx_package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/mxrun)
