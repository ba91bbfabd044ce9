# SPDX-License-Identifier: Apache-2.0
# An overlay port that builds the tree in which it lies: vcpkg install attnkit --overlay-ports=packaging/vcpkg. A port
# in a registry would call vcpkg_from_github, which sets SOURCE_PATH.
set(SOURCE_PATH "${CURRENT_PORT_DIR}/../..")
set(parts "")
foreach(part append linear layer integers products)
  if(part IN_LIST FEATURES)
    list(APPEND parts ${part})
  endif()
endforeach()
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS "-DATTNKIT_PARTS=${parts}")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/attnkit)
vcpkg_fixup_pkgconfig()
# CMakeLists.txt installs the static and the shared library. The package keeps the library of the kind that
# VCPKG_LIBRARY_LINKAGE names.
if(VCPKG_LIBRARY_LINKAGE STREQUAL "static")
  file(GLOB others "${CURRENT_PACKAGES_DIR}/lib/libattnkit.so*" "${CURRENT_PACKAGES_DIR}/debug/lib/libattnkit.so*")
else()
  set(others "${CURRENT_PACKAGES_DIR}/lib/libattnkit.a" "${CURRENT_PACKAGES_DIR}/debug/lib/libattnkit.a")
endif()
file(REMOVE ${others})
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
