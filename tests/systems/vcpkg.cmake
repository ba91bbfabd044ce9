# SPDX-License-Identifier: Apache-2.0
#
# Runs the port of packaging/vcpkg without vcpkg, which is in no package of Debian and PyPI. This file defines the
# functions of vcpkg that the port calls. These functions do only what the port needs. All variables below but OPTIONS
# have the names that vcpkg gives them:
#
#   cmake -DCURRENT_PORT_DIR=... -DCURRENT_PACKAGES_DIR=... -DCURRENT_BUILDTREES_DIR=... -DFEATURES=append
#         -DVCPKG_LIBRARY_LINKAGE=static -DOPTIONS=-DATTNKIT_ISAS=scalar -P tests/systems/vcpkg.cmake
#
# OPTIONS are further options of each configuration, as in a triplet of vcpkg.
cmake_minimum_required(VERSION 3.25)
set(PORT attnkit)

# vcpkg builds everything twice, for release and for debugging.
function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  if(DEFINED arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "vcpkg_cmake_configure: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(is_shared OFF)
  if(VCPKG_LIBRARY_LINKAGE STREQUAL dynamic)
    set(is_shared ON)
  endif()
  foreach(kind Release Debug)
    set(prefix "${CURRENT_PACKAGES_DIR}")
    if(kind STREQUAL Debug)
      string(APPEND prefix /debug)
    endif()
    execute_process(COMMAND_ERROR_IS_FATAL ANY
      COMMAND "${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${CURRENT_BUILDTREES_DIR}/${kind}" -G Ninja
      ${OPTIONS} ${arg_OPTIONS} -DCMAKE_BUILD_TYPE=${kind} "-DCMAKE_INSTALL_PREFIX=${prefix}"
      -DCMAKE_INSTALL_LIBDIR:STRING=lib -DBUILD_SHARED_LIBS=${is_shared})
  endforeach()
endfunction()

function(vcpkg_cmake_install)
  foreach(kind Release Debug)
    execute_process(COMMAND_ERROR_IS_FATAL ANY
      COMMAND "${CMAKE_COMMAND}" --build "${CURRENT_BUILDTREES_DIR}/${kind}" --target install)
  endforeach()
endfunction()

# vcpkg moves the files of find_package to share/. It also corrects the line of these files that finds the prefix.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
  file(GLOB configs "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/*")
  foreach(config IN LISTS configs)
    file(READ "${config}" text)
    string(REGEX REPLACE "(\\(PACKAGE_PREFIX_DIR \"[^\"]*LIST_DIR}/)[./]+\"" "\\1../../\"" text "${text}")
    get_filename_component(name "${config}" NAME)
    file(WRITE "${CURRENT_PACKAGES_DIR}/share/${PORT}/${name}" "${text}")
  endforeach()
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib/cmake" "${CURRENT_PACKAGES_DIR}/debug/lib/cmake")
endfunction()

# vcpkg writes the prefix in a .pc file of pkg-config as a path from the folder of the .pc file.
function(vcpkg_fixup_pkgconfig)
  foreach(prefix "${CURRENT_PACKAGES_DIR}" "${CURRENT_PACKAGES_DIR}/debug")
    set(path "${prefix}/lib/pkgconfig/${PORT}.pc")
    file(READ "${path}" text)
    string(REPLACE "prefix=${prefix}" "prefix=\${pcfiledir}/../.." text "${text}")
    file(WRITE "${path}" "${text}")
  endforeach()
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  file(READ ${arg_FILE_LIST} text)
  file(WRITE "${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright" "${text}")
endfunction()

include("${CURRENT_PORT_DIR}/portfile.cmake")
