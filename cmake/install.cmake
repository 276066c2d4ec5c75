# SPDX-License-Identifier: MIT
#
# What `cmake --install` puts where: header, both libraries, ogive.pc for
# pkg-config and a package for find_package(Ogive). cli/ installs its own command.
include(CMakePackageConfigHelpers)

install(FILES include/ogive.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS ogive ogive_static EXPORT OgiveTargets
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Ogive)
configure_package_config_file(cmake/OgiveConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/OgiveConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/OgiveConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/OgiveConfig.cmake
              ${PROJECT_BINARY_DIR}/OgiveConfigVersion.cmake
        DESTINATION ${package_dir})
install(EXPORT OgiveTargets NAMESPACE Ogive:: DESTINATION ${package_dir})

# ogive.pc finds its prefix from its own place, so the tree can be moved.
file(RELATIVE_PATH prefix_from_pc /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
# Programs find the library where no loader looks, in a home for example.
set(rpath_of_pc " -Wl,-rpath,\${libdir}")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    set(rpath_of_pc "")
endif()
configure_file(cmake/ogive.pc.in ${PROJECT_BINARY_DIR}/ogive.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ogive.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
