// SPDX-License-Identifier: Apache-2.0
// The message `tensorflow.Example`: named lists of byte strings, float32 or int64, in protobuf's wire format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndd/python_interface.h"
#include "readers/record_request.h"

namespace ndd {

struct Feature {
  NDD_PLAIN_ENUM("tfrecord.Type", Type, int, int64, string, float32);  // DALI uses the same numbers

  std::string name;
  Type type;
  int64_t count;        // elements; below 0: any number of rows
  int64_t row;          // elements of a row
  std::string missing;  // the elements when there are none; for rows always none
};

// Finds the features in the message [begin, end) of a record; long strings stay ranges. Error says what is wrong.
void parse_example(RecordBytes& record, int64_t begin, int64_t end, const std::vector<Feature>& features, std::vector<RecordPart>& parts);

}  // namespace ndd
