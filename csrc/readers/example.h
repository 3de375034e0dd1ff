// SPDX-License-Identifier: Apache-2.0
// The message `tensorflow.Example`: named lists of byte strings, float32 or int64, in protobuf's wire format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "readers/record_request.h"

namespace ndd {

struct Feature {
  enum Type { int64 = 0, string = 1, float32 = 2 };  // the numbers of torch_ndd/tfrecord.py

  std::string name;
  Type type;
  int64_t count;        // elements; below 0: any number of rows
  int64_t row;          // elements of a row
  std::string missing;  // the elements when there are none; for rows always none
};

// Finds the features in the message [begin, end) of a record; long strings stay ranges. Error says what is wrong.
void parse_example(RecordBytes& record, int64_t begin, int64_t end, const std::vector<Feature>& features, std::vector<RecordPart>& parts);

}  // namespace ndd
