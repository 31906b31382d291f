// Ownership, requests, outputs, callbacks, text: nanovllm.hpp with exceptions, as C++17 sees it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <numeric>
#include <thread>

#include "demo.hpp"

std::string answer_in_another_unit(nvllm::engine& engine, std::string_view prompt);

namespace {

constexpr char primes[] = "Prime numbers within 10: 2, 3, 5, 7.";

std::string primes_prompt(const nvllm::engine& engine) {
  return engine.apply_chat_template({{"user", "list all prime numbers within 10"}});
}

template <class Call>
nvllm_status status_of(const Call& call) {
  try {
    call();
    return NVLLM_OK;
  } catch (const nvllm::error& error) {
    EXPECT_STRNE(error.what(), "");
    return error.status();
  }
}

TEST(Engine, AnswersPromptsInTheirOrder) {
  nvllm::engine engine(demo_options());
  std::vector<std::string> prompts = {primes_prompt(engine),
                                      engine.apply_chat_template({{"user", "introduce yourself"}})};
  nvllm::results answers = engine.generate(prompts, greedy(64));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].text(), primes);
  EXPECT_EQ(answers[0].finish(), nvllm::finish::stop);
  EXPECT_EQ(answers[0].finish_reason(), nvllm::finish::stop);
  size_t seen = 0;
  for (const nvllm::output& answer : answers) {
    size_t hidden = answer.finish() == nvllm::finish::stop;
    EXPECT_EQ(answer.token_ids().size() + hidden, answer.completion_tokens()) << "the end token is counted, not shown";
    EXPECT_GT(answer.prompt_tokens(), 0u);
    seen++;
  }
  EXPECT_EQ(seen, 2u);
  EXPECT_EQ(answers[2].text(), "") << "there is no third answer, and asking for it is harmless";
}

TEST(Engine, CallsOfToolsAreValidWhateverTheModelThinks) {
  nvllm::engine_options larger = demo_options();
  larger.max_model_len = 1024;
  nvllm::engine engine(larger);
  const std::string tools =
      R"([{"name": "roll", "parameters": {"type": "object", "properties": {"sides": {"enum": [6, 20]}}, "required": ["sides"],)"
      R"( "additionalProperties": false}}])";
  nvllm::request_options options = greedy(400);
  options.temperature = 8;
  options.seed = 3;
  options.tools = tools;
  options.tool_choice = nvllm::tool_choice::required;
  options.parallel_tool_calls = false;
  options.keep_special_tokens = true;
  const std::string prompt = "<|im_start|>assistant\n<think>\n";
  options.max_thinking_tokens = 4;
  nvllm::answer_parser parser = engine.make_answer_parser(prompt, tools);
  uint64_t id = engine.add(prompt, options);
  std::string arguments;
  uint32_t reasoned = 0;
  while (!engine.is_finished()) {
    engine.step();
    for (const nvllm::output& output : engine.outputs()) {
      ASSERT_EQ(output.request_id(), id);
      reasoned = output.reasoning_tokens();
      for (const nvllm::answer_event& event : parser.feed(output.text()))
        if (event.kind == nvllm::answer_event_kind::tool_call_arguments) arguments += event.text;
    }
  }
  for (const nvllm::answer_event& event : parser.finish())
    if (event.kind == nvllm::answer_event_kind::tool_call_arguments) arguments += event.text;
  EXPECT_TRUE(arguments == R"({"sides":6})" || arguments == R"({"sides":20})") << arguments;
  const std::string message = parser.message();
  EXPECT_NE(message.find(R"("tool_calls":[{"type":"function","function":{"name":"roll",)"), std::string::npos) << message;
  EXPECT_LE(reasoned, 4u);
  EXPECT_EQ(status_of([&] { (void)parser.feed("more"); }), NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { (void)engine.make_answer_parser("", "{}"); }), NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { (void)engine.make_answer_parser("", std::string("[\0]", 3)); }), NVLLM_ERR_INVALID_ARGUMENT);
}

TEST(Engine, OpensByItsPathAlone) {
  nvllm::engine by_text = nvllm::engine::open(NVLLM_TEST_MODEL), by_options({NVLLM_TEST_MODEL});
  nvllm::engine by_string = nvllm::engine::open(std::string(NVLLM_TEST_MODEL));
  EXPECT_EQ(by_text.model_info().num_layers, by_options.model_info().num_layers);
  EXPECT_EQ(by_string.model_info().num_layers, by_options.model_info().num_layers);
}

TEST(Engine, AnswersAConversation) {
  nvllm::engine engine(demo_options());
  uint64_t id = engine.add_chat({{"user", "list all prime numbers within 10"}}, greedy(64));
  std::string text;
  while (!engine.is_finished()) {
    engine.step();
    for (const nvllm::output& delta : engine.outputs()) {
      EXPECT_EQ(delta.request_id(), id);
      text += delta.text();
    }
  }
  EXPECT_EQ(text, primes);
  EXPECT_NE(engine.add_chat({{"user", "hello"}}, R"({"add_generation_prompt": false})"), id);
  EXPECT_EQ(status_of([&] { engine.add_chat({}); }), NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { engine.add_chat({{"user", std::string("a\0b", 3)}}); }), NVLLM_ERR_INVALID_ARGUMENT);
}

TEST(Engine, ResultsOutliveTheirEngine) {
  std::optional<nvllm::engine> engine(demo_options());
  nvllm::results answers = engine->generate({primes_prompt(*engine)}, greedy(64));
  engine.reset();
  EXPECT_EQ(answers[0].text(), primes);
}

TEST(Engine, AMissingModelIsAnErrorWithFacts) {
  nvllm::engine_options options;
  options.model_path = "/no/such/folder";
  try {
    nvllm::engine engine(options);
    FAIL() << "it opened";
  } catch (const nvllm::error& error) {
    EXPECT_EQ(error.status(), NVLLM_ERR_IO);
#ifdef _WIN32
    EXPECT_EQ(error.native_code(), 3) << "ERROR_PATH_NOT_FOUND";
#else
    EXPECT_EQ(error.native_code(), ENOENT);
#endif
    EXPECT_NE(std::string(error.what()).find("/no/such/folder"), std::string::npos) << error.what();
  }
}

TEST(Engine, OpensFilesInMemory) {
  std::string folder = demo_options().model_path;
  std::vector<std::string> contents;
  std::vector<nvllm::model_file> files;
  contents.reserve(4);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
    std::ifstream file(folder + "/" + name, std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    files.push_back(nvllm::model_file::in_memory(name, contents.back().data(), contents.back().size()));
  }
  nvllm::engine_options options = demo_options();
  options.model_path.clear();
  nvllm::engine engine(options, files);
  EXPECT_EQ(engine.generate({primes_prompt(engine)}, greedy(64))[0].text(), primes);
  EXPECT_EQ(status_of([&] { nvllm::engine without(options, {}); }), NVLLM_ERR_MODEL);
  EXPECT_EQ(status_of([&] {
              nvllm::engine closed(options, {nvllm::model_file::in_range("config.json", -1, 0, 1)});
            }),
            NVLLM_ERR_IO);
  files.push_back(nvllm::model_file::in_memory(std::string("a\0b", 3), "", 0));
  EXPECT_EQ(status_of([&] { nvllm::engine cut(options, files); }), NVLLM_ERR_INVALID_ARGUMENT);
}

TEST(Engine, MovesAndRefusesWorkAfterwards) {
  nvllm::engine first(demo_options());
  nvllm::engine second(std::move(first));
  EXPECT_EQ(second.generate({primes_prompt(second)}, greedy(64))[0].text(), primes);
  EXPECT_EQ(first.native(), nullptr);
  EXPECT_EQ(status_of([&] { first.step(); }), NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { first.add("x"); }), NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { first.poll(); }), NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_TRUE(first.is_finished());
  first = std::move(second);
  EXPECT_EQ(answer_in_another_unit(first, primes_prompt(first)), primes);

  nvllm::engine third(demo_options());
  nvllm_engine* handle = third.native();
  first = std::move(third);
  EXPECT_EQ(first.native(), handle);
  EXPECT_EQ(third.native(), nullptr) << "the engine that was replaced is gone";
  nvllm::engine& itself = first;
  first = std::move(itself);
  EXPECT_EQ(first.native(), handle);
}

TEST(Engine, StepsAndHandsOutEachTokenOnce) {
  nvllm::engine engine(demo_options());
  nvllm::request_options options = greedy(6);
  options.ignore_eos = true;
  options.tag = 4711;
  uint64_t id = engine.add_request_tokens({5, 6, 7}, options);
  EXPECT_FALSE(engine.is_finished());
  size_t tokens = 0;
  std::optional<nvllm::finish> finish;
  while (!engine.is_finished()) {
    engine.step();
    for (const nvllm::output& news : engine.outputs()) {
      EXPECT_EQ(news.request_id(), id);
      EXPECT_EQ(news.tag(), 4711u);
      EXPECT_TRUE(news.logprobs().empty());
      tokens += news.token_ids().size();
      finish = news.finish();
    }
  }
  EXPECT_EQ(tokens, 6u);
  EXPECT_EQ(finish, nvllm::finish::length);
  EXPECT_FALSE(engine.poll());
}

TEST(Engine, ABudgetIsKeptAndTheWorkGoesOn) {
  nvllm::engine engine(demo_options());
  engine.add(primes_prompt(engine), greedy(64));
  std::string text;
  while (!engine.is_finished()) {
    engine.step(std::chrono::microseconds(100));
    for (const nvllm::output& news : engine.outputs()) text += news.text();
  }
  EXPECT_EQ(text, primes);
}

TEST(Engine, WaitsForWorkOutputsAndOtherThreads) {
  using namespace std::chrono_literals;
  nvllm::engine engine(demo_options());
  EXPECT_FALSE(engine.wait(0us));
  EXPECT_FALSE(engine.wait(-1us));
  EXPECT_FALSE(engine.wait(20ms));
  engine.wake();
  EXPECT_FALSE(engine.wait()) << "woken before";

  std::thread adder([&] {
    std::this_thread::sleep_for(20ms);
    engine.add_request_tokens({5, 6, 7}, greedy(4));
  });
  EXPECT_TRUE(engine.wait());
  adder.join();
  while (engine.stats().running + engine.stats().waiting > 0) engine.step();
  EXPECT_TRUE(engine.wait()) << "outputs wait";
  while (engine.poll()) continue;
  EXPECT_FALSE(engine.wait(0us));
  nvllm::engine moved(std::move(engine));
  EXPECT_EQ(status_of([&] { engine.wait(); }), NVLLM_ERR_INVALID_ARGUMENT);
}

TEST(Engine, CancelledRequestsEndAndUnknownOnesAreNone) {
  nvllm::engine engine(demo_options());
  nvllm::request_options options = greedy(400);
  options.ignore_eos = true;
  uint64_t id = engine.add_tokens({5, 6, 7}, options);
  engine.step();
  EXPECT_TRUE(engine.cancel(id));
  EXPECT_FALSE(engine.cancel(id + 1000));
  std::optional<nvllm::finish> finish;
  while (!engine.is_finished()) {
    engine.step();
    while (std::optional<nvllm::output> news = engine.poll()) finish = news->finish();
  }
  EXPECT_EQ(finish, nvllm::finish::cancelled);
  EXPECT_FALSE(engine.cancel(id)) << "it has ended";
}

TEST(Engine, OptionsReachTheLibrary) {
  nvllm::engine engine(demo_options());
  nvllm_model_info info = engine.model_info();
  EXPECT_EQ(info.max_model_len, 512u);
  EXPECT_EQ(info.vocab_size, 2048u);
  nvllm::request_options too_wide;
  too_wide.beam_width = 1000;
  EXPECT_EQ(status_of([&] { engine.add("x", too_wide); }), NVLLM_ERR_INVALID_ARGUMENT);
  nvllm::request_options senseless;
  senseless.top_p = 2.0f;
  EXPECT_EQ(status_of([&] { engine.add("x", senseless); }), NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { engine.add_tokens(std::vector<uint32_t>(600, 5)); }), NVLLM_ERR_CONTEXT_LENGTH);

  nvllm::request_options stops = greedy(64);
  stops.stop_tokens = engine.tokenize(",");
  ASSERT_EQ(stops.stop_tokens.size(), 1u);
  EXPECT_EQ(engine.generate({primes_prompt(engine)}, stops)[0].text(), "Prime numbers within 10: 2");
  EXPECT_EQ(engine.stats().running, 0u);
  EXPECT_GT(engine.stats().generated_tokens, 0u);

  const std::string repeating = "one: two, one:";
  std::vector<uint32_t> tokens = engine.tokenize(repeating);
  uint32_t wanted = *(std::find(tokens.begin(), tokens.end(), tokens.back()) + 1);
  using breakers = std::optional<std::vector<std::string>>;
  const std::pair<breakers, bool> cases[] = {
      {{}, true}, {breakers(std::in_place), false}, {{{"x"}}, false}, {{{"x", ":"}}, true}};
  for (const auto& [list, is_repeated] : cases) {
    nvllm::request_options dry = greedy(1);
    dry.logit_bias = {{wanted, 50.0f}};
    dry.dry_multiplier = 1000.0f;
    dry.dry_allowed_length = 1;
    dry.dry_sequence_breakers = list;
    EXPECT_EQ(engine.generate({repeating}, dry)[0].token_ids()[0] == wanted, is_repeated);
  }
}

TEST(Engine, DefaultOptionsAreWhatNoOptionsMean) {
  std::string texts[2];
  for (bool named : {false, true}) {
    // A request without a seed draws by its id, so each engine is fresh.
    nvllm::engine engine(demo_options());
    nvllm::request_options options = engine.default_options();
    EXPECT_EQ(options.temperature, 0.6f);
    EXPECT_EQ(options.top_k, 20u);
    EXPECT_EQ(options.n, 1u);
    EXPECT_EQ(options.ignore_eos, false);
    EXPECT_EQ(options.pooling, nvllm::pooling::none);
    std::vector<std::string> prompts = {"tell me a story"};
    nvllm::results answers = named ? engine.generate(prompts, options) : engine.generate(prompts);
    texts[named] = answers[0].text();
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_FALSE(texts[0].empty());
}

TEST(Engine, EachPromptMayHaveOptionsOfItsOwn) {
  nvllm::engine engine(demo_options());
  std::string prompt = primes_prompt(engine);
  std::vector<nvllm::request_options> options = {greedy(2), greedy(4)};
  nvllm::results answers = engine.generate({prompt, prompt}, options);
  EXPECT_EQ(answers[0].completion_tokens(), 2u);
  EXPECT_EQ(answers[1].completion_tokens(), 4u);
  nvllm::results by_tokens = engine.generate_tokens({{5, 6, 7}}, {greedy(3)});
  EXPECT_LE(by_tokens[0].completion_tokens(), 3u);
}

TEST(Engine, APromptMayHaveSeveralCompletionsAndStopStrings) {
  nvllm::engine engine(demo_options());
  nvllm::request_options options = greedy(64);
  options.n = 2;
  options.stop = {", 5"};
  nvllm::results answers = engine.generate({primes_prompt(engine)}, options);
  ASSERT_EQ(answers.size(), 2u);
  for (const nvllm::output& answer : answers) EXPECT_EQ(answer.text(), "Prime numbers within 10: 2, 3");
  EXPECT_NE(engine.metrics_text().find("nanovllm_"), std::string::npos);
}

TEST(Engine, APromptThatCannotRunIsAResultWithItsReason) {
  nvllm::engine engine(demo_options());
  nvllm::results answers = engine.generate({std::string_view(), std::string_view("hello")}, greedy(2));
  ASSERT_EQ(answers[0].finish(), nvllm::finish::error);
  ASSERT_TRUE(answers[0].error());
  EXPECT_EQ(answers[0].error()->status, NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_NE(answers[0].error()->message, "");
  EXPECT_FALSE(answers[1].error());
}

TEST(Engine, OutputsBringLogprobsOfTheAnswerAndOfThePrompt) {
  nvllm::engine engine(demo_options());
  nvllm::request_options options = greedy(3);
  options.num_logprobs = 2;
  options.num_prompt_logprobs = 1;
  std::string prompt = primes_prompt(engine);
  engine.add(prompt, options);
  std::vector<nvllm::owned_output> copies;
  while (!engine.is_finished()) {
    engine.step();
    for (const nvllm::output& news : engine.outputs()) copies.emplace_back(news);
  }
  size_t tokens = 0, prompt_places = 0;
  for (const nvllm::owned_output& copy : copies) {
    nvllm::output news = copy.get();
    ASSERT_EQ(news.logprobs().size(), news.token_ids().size());
    for (size_t i = 0; i < news.token_ids().size(); i++, tokens++) {
      ASSERT_EQ(news.top_tokens(i).size(), 2u);
      EXPECT_EQ(news.top_tokens(i)[0], news.token_ids()[i]) << "greedy takes the likeliest";
      EXPECT_EQ(news.top_logprobs(i)[0], news.logprobs()[i]);
      EXPECT_LE(news.top_logprobs(i)[1], news.top_logprobs(i)[0]);
    }
    for (size_t i = 0; i < news.prompt_logprobs().size(); i++, prompt_places++) {
      ASSERT_EQ(news.prompt_top_tokens(i).size(), 1u);
      EXPECT_LE(news.prompt_logprobs()[i], news.prompt_top_logprobs(i)[0]);
    }
  }
  EXPECT_EQ(tokens, 3u);
  EXPECT_EQ(prompt_places, copies.back().get().prompt_tokens() - 1);
}

TEST(Engine, AnAnswerIsHeldToItsStructure) {
  nvllm::engine engine(demo_options());
  nvllm::request_options options = greedy(64);
  options.structure_kind = nvllm::structure::regex;
  options.structure = "[a-f]{3}-[0-9]{2}";
  std::string text(engine.generate({primes_prompt(engine)}, options)[0].text());
  EXPECT_EQ(text.size(), 6u) << text;
  EXPECT_EQ(text.find_first_not_of("abcdef"), 3u) << text;
  EXPECT_EQ(text.find_first_not_of("0123456789", 4), std::string::npos) << text;
  EXPECT_EQ(text.find('-'), 3u) << text;
  options.structure = "[";
  EXPECT_EQ(status_of([&] { engine.add("x", options); }), NVLLM_ERR_INVALID_ARGUMENT);
}

TEST(Engine, TextsThatCWouldCutAtANulAreRefused) {
  nvllm::engine engine(demo_options());
  nvllm::request_options stop = greedy(4);
  stop.stop = {"a", std::string("b\0c", 3)};
  nvllm::request_options structured = greedy(4);
  structured.structure_kind = nvllm::structure::regex;
  structured.structure = std::string("a\0|b", 4);
  for (const nvllm::request_options& options : {stop, structured}) {
    EXPECT_EQ(status_of([&] { engine.add("x", options); }), NVLLM_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] { engine.add_tokens({5}, options); }), NVLLM_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] { engine.generate({"x"}, options); }), NVLLM_ERR_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] { engine.fork(1, options); }), NVLLM_ERR_INVALID_ARGUMENT);
  }
  nvllm::engine_options elsewhere = demo_options();
  elsewhere.model_path += std::string("\0more", 5);
  EXPECT_EQ(status_of([&] { nvllm::engine opened(elsewhere); }), NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_TRUE(engine.is_finished());
}

TEST(Engine, ABudgetBelowZeroIsSpentAtOnce) {
  nvllm::engine engine(demo_options());
  engine.add(primes_prompt(engine), greedy(64));
  EXPECT_EQ(engine.step(std::chrono::microseconds(-1)).num_running, 1u);
}

TEST(Engine, BeamSearchBringsItsBestAnswersFirst) {
  nvllm::engine engine(demo_options());
  nvllm::request_options options = greedy(8);
  options.beam_width = 3;
  options.n = 2;
  options.early_stopping = nvllm::early_stopping::never;
  EXPECT_EQ(options.early_stopping, 2u) << "a number is one of its values";
  nvllm::results answers = engine.generate({primes_prompt(engine)}, options);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_LT(answers[0].score(), 0.0f);
  EXPECT_GE(answers[0].score(), answers[1].score());
  EXPECT_NE(answers[0].text(), answers[1].text());
}

TEST(Engine, TextBecomesTokensAndTextAgain) {
  nvllm::engine engine(demo_options());
  for (std::string text : {"", "hello world", "grüß dich 你好 🙂", "a \"quoted\" \n line"}) {
    std::vector<uint32_t> tokens = engine.tokenize(text);
    EXPECT_EQ(engine.detokenize(tokens), text);
  }
  EXPECT_EQ(engine.tokenize("<|im_end|>", nvllm::special_tokens::parse).size(), 1u);
  EXPECT_GT(engine.tokenize("<|im_end|>").size(), 1u);
  std::vector<uint32_t> many(3000, engine.tokenize(" prime").at(0));
  EXPECT_GT(engine.detokenize(many).size(), many.size()) << "a text longer than the first guess";
  EXPECT_EQ(status_of([&] { engine.tokenize("\xff"); }), NVLLM_ERR_INVALID_ARGUMENT);
}

TEST(Engine, MessagesAreWrittenAsJson) {
  EXPECT_EQ(nvllm::messages_json({}), "[]");
  EXPECT_EQ(nvllm::messages_json({{"user", "say \"ü\"\n"}, {"assistant", "\\"}}),
            R"([{"role": "user", "content": "say \u0022ü\u0022\u000a"}, {"role": "assistant", "content": "\u005c"}])");
}

TEST(Callbacks, AnOutputCallbackTakesOutputsAndCancels) {
  nvllm::engine engine(demo_options());
  nvllm::request_options options = greedy(400);
  options.ignore_eos = true;
  engine.add_tokens({5, 6, 7}, options);
  int calls = 0;
  std::optional<nvllm::finish> finish;
  engine.set_output_callback([&](const nvllm::output& news) {
    finish = news.finish();
    return ++calls < 3;
  });
  while (!engine.is_finished()) engine.step();
  EXPECT_EQ(finish, nvllm::finish::cancelled);
  EXPECT_EQ(calls, 4);
}

TEST(Callbacks, AnExceptionGoesThroughTheLibraryAndTheEngineGoesOn) {
  nvllm::engine engine(demo_options());
  std::string prompt = primes_prompt(engine);
  engine.add(prompt, greedy(64));
  engine.set_output_callback([](const nvllm::output&) -> bool { throw std::logic_error("no taste for it"); });
  EXPECT_THROW(while (!engine.is_finished()) engine.step(), std::logic_error);
  engine.set_output_callback({});
  EXPECT_THROW(engine.generate({prompt}, [](const nvllm_progress&) -> bool { throw std::range_error("enough"); }),
               std::range_error);
  EXPECT_EQ(engine.generate({prompt}, greedy(64))[0].text(), primes);
}

TEST(Callbacks, AnEngineMayBeDestroyedInsideOne) {
  std::optional<nvllm::engine> engine;
  int calls = 0;
  auto destroy = [&](const nvllm::output&) -> bool {
    calls++;
    engine.reset();
    throw std::logic_error("after the end");
  };
  engine.emplace(demo_options());
  engine->set_output_callback(destroy);
  engine->add("hello", greedy(8));
  engine->add("hello", greedy(8));
  EXPECT_THROW(engine->step(), std::logic_error);
  EXPECT_EQ(calls, 1);

  engine.emplace(demo_options());
  engine->set_output_callback(destroy);
  engine->add("hello", greedy(8));
  EXPECT_THROW(engine->generate({"hello"}, greedy(8)), std::logic_error);
  EXPECT_EQ(calls, 2);

  engine.emplace(demo_options());
  bool assigned = false;
  engine->set_output_callback([&](const nvllm::output&) {
    if (!assigned) engine = nvllm::engine(demo_options());
    return assigned = true;
  });
  engine->add("hello", greedy(8));
  engine->step();
  EXPECT_TRUE(assigned);
  EXPECT_EQ(engine->generate({primes_prompt(*engine)}, greedy(64))[0].text(), primes);
}

TEST(Callbacks, GenerateReportsProgressAndCanBeCancelled) {
  nvllm::engine engine(demo_options());
  std::string prompt = primes_prompt(engine);
  size_t finished = 0;
  engine.generate({prompt, prompt}, greedy(8), [&](const nvllm_progress& progress) {
    EXPECT_EQ(progress.total, 2u);
    finished = progress.finished;
    return true;
  });
  EXPECT_EQ(finished, 2u);
  EXPECT_EQ(status_of([&] { engine.generate({prompt}, [](const nvllm_progress&) { return false; }); }),
            NVLLM_ERR_CANCELLED);
}

TEST(Callbacks, LoadingReportsProgressAndCanBeCancelled) {
  float last = 0;
  nvllm::engine_options options = demo_options();
  options.progress = [&](float fraction) {
    EXPECT_GE(fraction, last);
    last = fraction;
    return true;
  };
  nvllm::engine engine(options);
  EXPECT_EQ(last, 1.0f);
  options.progress = [](float) { return false; };
  EXPECT_EQ(status_of([&] { nvllm::engine cancelled(options); }), NVLLM_ERR_CANCELLED);
}

TEST(Callbacks, TheLogIsSilentUntilSomeoneListens) {
  std::vector<std::string> messages;
  nvllm::set_log_callback([&](int32_t, std::string_view message) { messages.emplace_back(message); }, NVLLM_LOG_DEBUG);
  {
    nvllm::engine engine(demo_options());
  }
  nvllm::set_log_callback({}, NVLLM_LOG_OFF);
  size_t heard = messages.size();
  EXPECT_GT(heard, 0u);
  {
    nvllm::engine engine(demo_options());
  }
  EXPECT_EQ(messages.size(), heard);
}

TEST(Threads, AddFromManyWhileOneSteps) {
  nvllm::engine engine(demo_options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 8; i++) engine.add_tokens({5, 6, 7}, greedy(2));
    });
  }
  int ended = 0;
  while (ended < 32) {
    engine.step();
    for (const nvllm::output& news : engine.outputs()) ended += news.finish().has_value();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine.is_finished());
}

TEST(Threads, ASecondStepperIsRefused) {
  nvllm::engine engine(demo_options());
  engine.add_tokens({5, 6, 7}, greedy(2));
  nvllm_status inside = NVLLM_OK, polled = NVLLM_OK;
  engine.set_output_callback([&](const nvllm::output&) {
    inside = status_of([&] { engine.step(); });
    polled = status_of([&] { engine.poll(); });
    return true;
  });
  while (!engine.is_finished()) engine.step();
  EXPECT_EQ(inside, NVLLM_ERR_BUSY);
  EXPECT_EQ(polled, NVLLM_ERR_BUSY);
}

TEST(Output, ACopyOutlivesTheNextCall) {
  nvllm::engine engine(demo_options());
  engine.add(primes_prompt(engine), greedy(64));
  std::vector<nvllm::owned_output> kept;
  while (!engine.is_finished()) {
    engine.step();
    for (const nvllm::output& news : engine.outputs()) kept.emplace_back(news);
  }
  std::string text;
  size_t tokens = 0;
  for (const nvllm::owned_output& news : kept) {
    text += news.get().text();
    tokens += news.get().token_ids().size();
  }
  EXPECT_EQ(text, primes);
  EXPECT_EQ(tokens + 1, kept.back().get().completion_tokens()) << "the end token is counted and not shown";
  EXPECT_TRUE(kept.back().get().time_to_first_token());
}

TEST(State, PrefixesArePinnedSavedRestoredAndForked) {
  nvllm::engine here(demo_options()), there(demo_options());
  const std::vector<uint32_t> prompt(40, 7);
  nvllm::request_options options = greedy(2);
  options.pin_prompt = true;
  uint64_t id = here.add_tokens(prompt, options);
  uint64_t fork = here.fork(id, greedy(2));
  EXPECT_GT(fork, id);
  while (!here.is_finished()) {
    here.step();
    for (const nvllm::output& news : here.outputs()) EXPECT_EQ(news.cached_tokens() % 16, 0u);
  }
  here.reset_prefix_cache();
  uint64_t before = here.stats().kv_cache_bytes_mapped;
  uint64_t freed = here.trim();
  EXPECT_EQ(here.trim(), 0u);
  EXPECT_TRUE(here.stats().kv_cache_bytes_mapped + freed <= before);
  std::vector<uint8_t> saved = here.save_prefix(prompt);
  EXPECT_TRUE(here.release_prefix(id));
  EXPECT_FALSE(here.release_prefix(id));
  EXPECT_EQ(there.restore_prefix(saved), 32u);
  saved.pop_back();
  EXPECT_EQ(status_of([&] { there.restore_prefix(saved); }), NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { there.fork(1, greedy(1)); }), NVLLM_ERR_NOT_FOUND);
}

TEST(Processes, AFollowerServesUntilTheLeaderIsGone) {
  // Two processes elsewhere; two threads here.
  nvllm::engine_options options = demo_options();
  options.device = nvllm::device::cpu;
  options.tensor_parallel_size = 2;
  options.num_processes = 2;
#ifdef _WIN32
  options.rendezvous = "127.0.0.1:" + std::to_string(20000 + getpid() % 20000);
#else
  options.rendezvous = "unix:" + testing::TempDir() + "nvllm-rendezvous-" + std::to_string(getpid());
#endif
  int served = 0;
  std::thread worker([&, options]() mutable {
    options.process_index = 1;
    nvllm::engine follower(options);
    EXPECT_EQ(status_of([&] { follower.add_tokens(std::vector<uint32_t>{1, 2}); }), NVLLM_ERR_UNSUPPORTED);
    while (follower.serve()) served++;
    EXPECT_EQ(status_of([&] { follower.step(); }), NVLLM_CLOSED);
  });
  {
    nvllm::engine leader(options);
    EXPECT_EQ(leader.generate({primes_prompt(leader)}, greedy(64))[0].text(), primes);
  }
  worker.join();
  EXPECT_GT(served, 8);
}

TEST(Output, AnEmbeddingIsCopied) {
  nvllm::engine engine(demo_options());
  nvllm::request_options options;
  options.pooling = nvllm::pooling::mean;
  engine.add_tokens({5, 6, 7}, options);
  std::vector<nvllm::owned_output> kept;
  while (!engine.is_finished()) {
    engine.step();
    for (const nvllm::output& news : engine.outputs()) kept.emplace_back(news);
  }
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].get().embedding().size(), engine.model_info().hidden_size);
}

TEST(Engine, CountsTheTokensOfExpertsWhereAsked) {
  nvllm::engine_options options = demo_options();
  EXPECT_EQ(status_of([&] { nvllm::engine(options).expert_tokens(0); }), NVLLM_ERR_INVALID_ARGUMENT);
  options.expert_statistics = true;
  EXPECT_TRUE(nvllm::engine(options).expert_tokens(0).empty()) << "the model has no experts";
}

TEST(Engine, ScoresTokensAfterTexts) {
  nvllm::engine engine(demo_options());
  nvllm::request_options options;
  options.score_tokens = {40, 41, 7};
  nvllm::results scored = engine.score({"an iron sword", "a loaf of bread", "an iron sword"}, {}, options);
  ASSERT_EQ(scored.size(), 3u);
  for (const nvllm::output& output : scored) {
    EXPECT_EQ(output.scores().size(), 3u);
    EXPECT_EQ(output.token_ids().size(), 0u);
    EXPECT_NEAR(std::accumulate(output.scores().begin(), output.scores().end(), 0.0f), 1.0f, 1e-5f);
  }
  const auto first = scored[0].scores(), other = scored[1].scores(), again = scored[2].scores();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), again.begin()));
  EXPECT_FALSE(std::equal(first.begin(), first.end(), other.begin()));
  options.score_tokens = {4, 5, 4};
  EXPECT_EQ(status_of([&] { engine.add_request("an iron sword", options); }), NVLLM_ERR_INVALID_ARGUMENT);
}

TEST(Library, TellsItsVersion) {
  EXPECT_EQ(nvllm::version(), std::to_string(NVLLM_VERSION_MAJOR) + "." + std::to_string(NVLLM_VERSION_MINOR) + "." +
                                  std::to_string(NVLLM_VERSION_PATCH));
  EXPECT_NE(nvllm::build_info().find("\"backends\""), std::string_view::npos);
}

}  // namespace
