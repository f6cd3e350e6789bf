# sluice_c_array(OUT NAME HEX): sets OUT to the definition of `static const unsigned char NAME[]`, these bytes and a 0.
function(sluice_c_array out name hex)
  string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" hex "${hex}")
  set(${out} "static const unsigned char ${name}[] = {\n${hex}\n0};\n" PARENT_SCOPE)
endfunction()
