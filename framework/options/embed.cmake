# cmake -DFOLDER=mappings -DNAME=embedded_mappings -DOUT=mappings.cpp -P embed.cmake: every .yaml below FOLDER as text in a C++ source,
# given by a function NAME.
# As bytes, because a compiler need not take a literal longer than 64 KiB.
file(GLOB_RECURSE files RELATIVE ${FOLDER} ${FOLDER}/*.yaml)
list(SORT files)
set(list "")
set(code "#include \"framework/options/embedded.h\"\n\nnamespace tessera::options {\nnamespace {\n\n")
set(number 0)
foreach(file ${files})
  file(READ ${FOLDER}/${file} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f])" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," hex "${hex}")
  string(APPEND code "constexpr char text_${number}[] = {\n${hex}'\\0'};\n")
  string(APPEND list "    {\"${file}\", {text_${number}, ${bytes}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
string(APPEND code "\nconstexpr EmbeddedFile files[] = {\n${list}};\n\n}  // namespace\n\n"
  "std::span<const EmbeddedFile> ${NAME}() { return files; }\n\n}  // namespace tessera::options\n")
file(WRITE ${OUT} "${code}")
