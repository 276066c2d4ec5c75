# SPDX-License-Identifier: MIT
#
# Writes a C file whose arrays hold the text of other files: what emitted CUDA
# sources are made of, for a library that needs no file at run time.
#
#     cmake -DOUT=texts.c -DFILES=a.h,b.cuh -P embed.cmake
#
# a.h becomes  const char og_text_of_a[]  (with its suffix dropped), NUL-terminated.
string(REPLACE "," ";" files "${FILES}")
set(text "/* Made by embed.cmake: do not edit. */\n")
foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND text "extern const char og_text_of_${name}[];\n"
                       "const char og_text_of_${name}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE ${OUT} "${text}")
