# SPDX-License-Identifier: MIT
#
# FindJansson.cmake - find_package(Jansson): the target Jansson::Jansson. By header and
# library alone, so that CMAKE_PREFIX_PATH is enough: pkg-config need not be there.
find_path(Jansson_INCLUDE_DIR jansson.h)
if(OGIVE_BUILD_PYTHON) # the wheel's command: inside it, where there is an archive
    find_library(Jansson_LIBRARY NAMES libjansson.a jansson)
else()
    find_library(Jansson_LIBRARY jansson)
endif()
mark_as_advanced(Jansson_INCLUDE_DIR Jansson_LIBRARY)
if(Jansson_INCLUDE_DIR)
    file(STRINGS ${Jansson_INCLUDE_DIR}/jansson.h Jansson_VERSION REGEX "JANSSON_VERSION +\"")
    string(REGEX REPLACE ".*\"([0-9.]+)\".*" "\\1" Jansson_VERSION "${Jansson_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Jansson REQUIRED_VARS Jansson_LIBRARY Jansson_INCLUDE_DIR
                                  VERSION_VAR Jansson_VERSION)
if(Jansson_FOUND AND NOT TARGET Jansson::Jansson)
    add_library(Jansson::Jansson UNKNOWN IMPORTED)
    set_target_properties(Jansson::Jansson PROPERTIES
                          IMPORTED_LOCATION ${Jansson_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${Jansson_INCLUDE_DIR})
endif()
