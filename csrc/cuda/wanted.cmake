# Sets CUDA_WANTED, the default of TORCH_NDD_CUDA: whether there is NVCC, and a GPU or the request for the code of some GPUs.
set(CUDA_WANTED OFF)
if(NVCC)
  execute_process(COMMAND nvidia-smi -L RESULT_VARIABLE NO_GPU OUTPUT_QUIET ERROR_QUIET)
  if("${NO_GPU}" STREQUAL "0" OR EXISTS /dev/nvidia0 OR NOT "$ENV{TORCH_NDD_CUDA_ARCHS}" STREQUAL "")
    set(CUDA_WANTED ON)
  endif()
endif()
