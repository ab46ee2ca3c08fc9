// One training step of llm.c's train_gpt2.c: forward, loss, backward, AdamW; it does not clip gradients. Random weights and
// tokens. Prints one line of JSON, as torch_step.py. Compiled against a checkout of llm.c, which is no part of Tessera:
//
//   gcc -Ofast -march=native -fopenmp -DOMP -DTESTING -w -I CHECKOUT benchmarks/llmc_step.c -o llmc_step -lm
//   OMP_NUM_THREADS=2 ./llmc_step BATCH SEQ SECONDS
#include "train_gpt2.c"

static double seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// "some" of /proc/pressure/cpu in seconds; 0 if Linux does not tell.
static double stalled(void) {
  double microseconds = 0;
  FILE* file = fopen("/proc/pressure/cpu", "r");
  if (file == NULL || fscanf(file, "some avg10=%*f avg60=%*f avg300=%*f total=%lf", &microseconds) != 1) microseconds = 0;
  if (file != NULL) fclose(file);
  return 1e-6 * microseconds;
}

static float uniform(void) { return (float)rand() / (float)RAND_MAX - 0.5f; }

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void make_gpt2_124m(GPT2* model) {
  memset(model, 0, sizeof *model);
  model->config = (GPT2Config){.max_seq_len = 1024, .vocab_size = 50257, .padded_vocab_size = 50304, .num_layers = 12, .num_heads = 12, .channels = 768};
  fill_in_parameter_sizes(model->param_sizes, model->config);
  for (int i = 0; i < NUM_PARAMETER_TENSORS; ++i) model->num_parameters += model->param_sizes[i];
  model->params_memory = malloc_and_point_parameters(&model->params, model->param_sizes);
  const float* gains[] = {model->params.ln1w, model->params.ln2w, model->params.lnfw};
  float* at = model->params_memory;
  for (int i = 0; i < NUM_PARAMETER_TENSORS; ++i) {
    int is_gain = 0;
    for (int g = 0; g < 3; ++g) is_gain |= at == gains[g];
    for (size_t n = 0; n < model->param_sizes[i]; ++n) *at++ = is_gain ? 1.0f : 0.07f * uniform();
  }
  model->mean_loss = -1;
}

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "llmc_step BATCH SEQ SECONDS\n"), 2;
  const int batch = atoi(argv[1]), seq = atoi(argv[2]), tokens = batch * seq;
  const double longest = atof(argv[3]);
  GPT2 model;
  make_gpt2_124m(&model);
  int *inputs = malloc(tokens * sizeof(int)), *targets = malloc(tokens * sizeof(int));
  for (int i = 0; i < tokens; ++i) inputs[i] = rand() % 50257, targets[i] = rand() % 50257;
  enum { most = 10000 };
  static double all[most], clean[most];
  int count = 0, undisturbed = 0;
  double first_loss = 0, least_work = 1e30, start = 0;
  for (int step = 0; count < most && (count < 1 || seconds(CLOCK_MONOTONIC) - start < longest); ++step) {
    const double stall = stalled(), began = seconds(CLOCK_MONOTONIC), worked = seconds(CLOCK_PROCESS_CPUTIME_ID);
    gpt2_forward(&model, inputs, targets, batch, seq);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, step + 1);
    const double wall = seconds(CLOCK_MONOTONIC) - began, work = seconds(CLOCK_PROCESS_CPUTIME_ID) - worked;
    if (step == 0) {  // allocates
      first_loss = model.mean_loss, start = seconds(CLOCK_MONOTONIC);
      continue;
    }
    if (work < least_work) least_work = work;
    if (stalled() - stall < wall / 50) clean[undisturbed++] = wall;
    all[count++] = wall;
  }
  const int enough = undisturbed >= (count < 3 ? count : 3), kept = enough ? undisturbed : count;
  double* times = enough ? clean : all;
  qsort(times, kept, sizeof *times, by_size);
  FILE* status = fopen("/proc/self/status", "r");
  char line[256];
  long peak = 0;
  while (status != NULL && fgets(line, sizeof line, status) != NULL) sscanf(line, "VmHWM: %ld", &peak);
  printf("{\"who\": \"llm.c\", \"batch\": %d, \"seq\": %d, \"min_s\": %.5f, \"median_s\": %.5f, \"cpu_min_s\": %.5f, \"peak_rss_mb\": %ld, "
         "\"loss_first\": %.4f, \"loss_last\": %.4f, \"clean\": %d, \"steps\": %d}\n",
         batch, seq, times[0], times[kept / 2], least_work, peak / 1024, first_loss, model.mean_loss, undisturbed, count);
}
