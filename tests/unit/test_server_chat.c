/* Each chat API: requests as prompts, answers as the client gets them. */
#include "../chat_api.h"

/* One tool loop, in the words of each API, is one prompt. */
static void requests_become_one_prompt(void)
{
    static const char want[] = SYSTEM TOOLS "\n\nBe brief." END USER "q" END ASSISTANT "<think>\nhm\n</think>\n\nWell\n\n" CALL END
                               USER "<tool_response>\n19\n</tool_response>" END ASSISTANT "<think>\n";
    EXPECT(prompt_of(ds_routes_chat, q(
        "{'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': " SCHEMA "}}, {'type': 'web'}], 'messages': ["
        "{'role': 'developer', 'content': 'Be brief.'}, {'role': 'user', 'content': [{'type': 'text', 'text': 'q'}]},"
        "{'role': 'assistant', 'content': 'Well', 'reasoning_content': 'hm',"
        " 'tool_calls': [{'id': 'x', 'type': 'function', 'function': {'name': 'f', 'arguments': '{\\'a\\': 3}'}}]},"
        "{'role': 'tool', 'tool_call_id': 'x', 'content': '19'}]}")), want);
    CHECK(strstr(noted, "'web' is left out"));
    EXPECT(prompt_of(ds_routes_messages, q(
        "{'max_tokens': 9, 'thinking': {'type': 'adaptive'}, 'tools': [{'name': 'f', 'input_schema': " SCHEMA "}], 'system': 'Be brief.',"
        "'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 'hm',"
        " 'signature': ''}, {'type': 'text', 'text': 'Well'}, {'type': 'tool_use', 'id': 'x', 'name': 'f', 'input': {'a': 3}}]},"
        "{'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'x', 'content': [{'type': 'text', 'text': '19'}]}]}]}")), want);
    EXPECT(prompt_of(ds_routes_responses, q(
        "{'instructions': 'Be brief.', 'tools': [{'type': 'function', 'name': 'f', 'parameters': " SCHEMA "}], 'input': ["
        "{'role': 'user', 'content': 'q'}, {'type': 'reasoning', 'summary': [], 'content': [{'type': 'reasoning_text', 'text': 'hm'}]},"
        "{'type': 'message', 'role': 'assistant', 'content': [{'type': 'output_text', 'text': 'Well'}]},"
        "{'type': 'function_call', 'call_id': 'x', 'name': 'f', 'arguments': '{\\'a\\': 3}'},"
        "{'type': 'function_call_output', 'call_id': 'x', 'output': '19'}]}")), want);
}

static void requests_turn_thinking_on_and_off(void)
{
    static const char on[] = USER "q" END ASSISTANT "<think>\n", off[] = USER "q" END ASSISTANT CLOSED;
    EXPECT(CHAT(""), on);
    EXPECT(CHAT(", 'chat_template_kwargs': {'enable_thinking': false}"), off);
    EXPECT(CHAT(", 'reasoning_effort': 'none'"), off);
    EXPECT(CHAT(", 'reasoning_effort': 'high'"), on);
    EXPECT(MESSAGES(""), off);
    EXPECT(MESSAGES(", 'thinking': {'type': 'enabled', 'budget_tokens': 1024}"), on);
    EXPECT(MESSAGES(", 'thinking': {'type': 'disabled'}"), off);
    EXPECT(RESPONSES(""), on);
    EXPECT(RESPONSES(", 'reasoning': {'effort': 'minimal'}"), off);
}

static void requests_force_calls(void)
{
    static const char head[] = SYSTEM TOOLS END USER "q" END ASSISTANT CLOSED "<tool_call>\n<function=";
    static char named[4096];
    snprintf(named, sizeof named, "%sf>\n", head);
    EXPECT(CHAT(", " TOOL ", 'tool_choice': 'required'"), head);
    EXPECT(CHAT(", " TOOL ", 'tool_choice': {'type': 'function', 'function': {'name': 'f'}}"), named);
    EXPECT(CHAT(", " TOOL ", 'tool_choice': 'none'"), USER "q" END ASSISTANT "<think>\n");
    EXPECT(MESSAGES(", 'tools': [{'name': 'f', 'input_schema': " SCHEMA "}], 'tool_choice': {'type': 'any'}"), head);
    EXPECT(CHAT(", 'tool_choice': 'required'"), "400 tool_choice: 'tool_choice' asks for a call, but there are no tools");
    EXPECT_IN_ORDER(answer_to(ds_routes_chat, q("{'messages': [{'role': 'user', 'content': 'q'}], " TOOL ", 'tool_choice': 'required'}"),
                              "f>|\n</function>|</tool_call>", DS_FINISH_END),
                    "\"content\":null", "\"name\":\"f\",\"arguments\":\"{}\"", "\"finish_reason\":\"tool_calls\"");
}

/* No sentence counts messages of our own making: an API's item may be none, one or several of them. */
static void calls_without_results(void)
{
    static const char want[] = "the last message has tool calls: their results must follow";
    EXPECT_IN_ORDER(answer_to(ds_routes_chat, q("{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'tool_calls': "
                                                "[{'id': 'c', 'type': 'function', 'function': {'name': 'f', 'arguments': '{}'}}]}], " TOOL "}"),
                              "", DS_FINISH_END), want);
    EXPECT_IN_ORDER(answer_to(ds_routes_messages, q("{'max_tokens': 1, 'system': 's', 'messages': [{'role': 'user', 'content': 'q'}, "
                                                    "{'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 'c', 'name': 'f', 'input': {}}]}]}"),
                              "", DS_FINISH_END), want);
    EXPECT_IN_ORDER(answer_to(ds_routes_responses, q("{'instructions': 's', 'input': [{'role': 'user', 'content': 'q'}, "
                                                     "{'type': 'function_call', 'call_id': 'c', 'name': 'f', 'arguments': '{}'}]}"),
                              "", DS_FINISH_END), want);
}

static void answers_of_chat(void)
{
    static const char body[] = "{'messages': [{'role': 'user', 'content': 'q'}], 'stream': false, " TOOL "}",
                      stream[] = "{'messages': [{'role': 'user', 'content': 'q'}], 'stream': true, 'stream_options': {'include_usage': true}, " TOOL "}";
    EXPECT_IN_ORDER(answer_to(ds_routes_chat, q(body), "hm|\n</think>|\n\nWe|ll\n\n" CALL "|\n", DS_FINISH_END),
                    "\"content\":\"Well\"", "\"reasoning_content\":\"hm\"",
                    "\"tool_calls\":[{\"id\":\"call_#\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 3}\"}}]",
                    "\"finish_reason\":\"tool_calls\"", "\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15",
                    "\"cached_tokens\":4");
    EXPECT_IN_ORDER(answer_to(ds_routes_chat, q(stream), "hm|\n</think>|\n\nWe|ll\n\n" CALL "|\n", DS_FINISH_END),
                    "data: {", "\"delta\":{\"role\":\"assistant\"", "\"delta\":{\"reasoning_content\":\"hm\"}", "\"delta\":{\"content\":\"We\"}",
                    "\"delta\":{\"content\":\"ll\"}", "\"tool_calls\":[{\"index\":0,\"id\":\"call_#\"", "\"name\":\"f\",\"arguments\":\"\"}",
                    "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\": 3}\"}}]", "\"finish_reason\":\"tool_calls\"",
                    "\"choices\":[],\"usage\":", "data: [DONE]\n\n");
    EXPECT_IN_ORDER(answer_to(ds_routes_chat, q(body), "</think>|<tool_call>\n<function=f>\n", DS_FINISH_LENGTH),
                    "\"content\":\"<tool_call>\\n<function=f>\\n\"", "\"finish_reason\":\"length\"");
}

static void answers_of_messages(void)
{
#define MBODY "'max_tokens': 9, 'thinking': {'type': 'enabled'}, 'messages': [{'role': 'user', 'content': 'q'}],"                  \
              "'tools': [{'name': 'f', 'input_schema': " SCHEMA "}]"
    static const char answer[] = "hm|\n</think>|\n\nWe|ll\n\n" CALL "|\n" CALL;
    EXPECT_IN_ORDER(answer_to(ds_routes_messages, q("{" MBODY "}"), answer, DS_FINISH_END),
                    "\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},{\"type\":\"text\",\"text\":\"Well\"},"
                    "{\"type\":\"tool_use\",\"id\":\"toolu_#\",\"name\":\"f\",\"input\":{\"a\": 3}},{\"type\":\"tool_use\",",
                    "\"stop_reason\":\"tool_use\",\"stop_sequence\":null",
                    "\"input_tokens\":6,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4,\"output_tokens\":5");
    EXPECT_IN_ORDER(answer_to(ds_routes_messages, q("{" MBODY ", 'stream': true}"), answer, DS_FINISH_END),
                    "event: ping\n", "event: message_start\n", "\"input_tokens\":6", "\"cache_read_input_tokens\":4",
                    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\"",
                    "\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}",
                    "\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"\"}",
                    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}",
                    "\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}",
                    "\"delta\":{\"type\":\"text_delta\",\"text\":\"We\"}", "\"index\":1}",
                    "\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_#\",\"name\":\"f\",\"input\":{}}",
                    "\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\": 3}\"}", "\"index\":2}", "\"index\":3,", "\"index\":3}",
                    "event: message_delta\n", "\"stop_reason\":\"tool_use\"", "event: message_stop\n");
    EXPECT_IN_ORDER(answer_to(ds_routes_messages, q("{" MBODY ", 'stop_sequences': ['END']}"), "</think>a", DS_FINISH_STOP),
                    "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"END\"");
    EXPECT_IN_ORDER(answer_to(ds_routes_messages, q("{" MBODY "}"), "</think>a", DS_FINISH_WINDOW), "\"stop_reason\":\"model_context_window_exceeded\"");
    EXPECT_IN_ORDER(answer_to(ds_routes_messages, q("{" MBODY ", 'tool_choice': {'type': 'auto', 'disable_parallel_tool_use': true}}"),
                              "hm</think>" CALL "more" CALL, DS_FINISH_LENGTH),
                    "\"signature\":\"\"},{\"type\":\"tool_use\",\"id\":\"toolu_#\",\"name\":\"f\",\"input\":{\"a\": 3}}],\"stop_reason\":\"tool_use\"");
}

static void answers_of_responses(void)
{
#define RBODY "'input': 'q', 'tools': [{'type': 'function', 'name': 'f', 'parameters': " SCHEMA "}]"
    static const char answer[] = "hm|\n</think>|\n\nWe|ll\n\n" CALL;
    EXPECT_IN_ORDER(answer_to(ds_routes_responses, q("{" RBODY "}"), answer, DS_FINISH_END),
                    "\"status\":\"completed\"", "\"output\":[{\"id\":\"rs_#\",\"type\":\"reasoning\"", "{\"type\":\"reasoning_text\",\"text\":\"hm\"}",
                    "\"type\":\"message\"", "{\"type\":\"output_text\",\"text\":\"Well\"", "\"type\":\"function_call\"", "\"call_id\":\"call_#\"",
                    "\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 3}\"", "\"cached_tokens\":4", "\"reasoning_tokens\":2");
    EXPECT_IN_ORDER(answer_to(ds_routes_responses, q("{" RBODY ", 'stream': true}"), answer, DS_FINISH_END),
                    "event: response.created\n", "\"sequence_number\":0", "event: response.in_progress\n", "event: response.output_item.added\n",
                    "event: response.content_part.added\n", "event: response.reasoning_text.delta\n", "event: response.reasoning_text.done\n",
                    "event: response.content_part.done\n", "event: response.output_item.done\n", "event: response.output_item.added\n",
                    "event: response.output_text.delta\n", "\"delta\":\"We\"", "event: response.output_text.done\n", "\"text\":\"Well\"",
                    "event: response.output_item.added\n", "event: response.function_call_arguments.delta\n",
                    "event: response.function_call_arguments.done\n", "event: response.output_item.done\n", "event: response.completed\n");
}

/* What the limit cuts, words or thoughts, is incomplete itself, and what was whole before it is not. */
static void items_that_are_cut(void)
{
    static const struct { const char *pieces, *whole, *cut; } t[] = {
        { "hm</think>a", "\"type\":\"reasoning\",\"status\":\"completed\"", "\"type\":\"message\",\"status\":\"incomplete\"" },
        { "hm", "", "\"type\":\"reasoning\",\"status\":\"incomplete\"" },
    };
    static const enum ds_finish why[] = { DS_FINISH_LENGTH, DS_FINISH_WINDOW };
    for (size_t i = 0; i < 4; i++) {
        const char *whole = t[i / 2].whole, *cut = t[i / 2].cut, *pieces = t[i / 2].pieces;
        EXPECT_IN_ORDER(answer_to(ds_routes_responses, q("{" RBODY "}"), pieces, why[i % 2]),
                        "\"status\":\"incomplete\"", "\"incomplete_details\":{\"reason\":\"max_output_tokens\"}", whole, cut);
        EXPECT_IN_ORDER(answer_to(ds_routes_responses, q("{" RBODY ", 'stream': true}"), pieces, why[i % 2]), whole,
                        "event: response.output_item.done\n", cut, "event: response.incomplete\n", "\"output\":[", whole, cut);
    }
}

/* Trouble after the answer has begun has each API's own form. */
static void answers_that_fail(void)
{
    static const struct { const struct ds_route *route; const char *body, *want; } t[] = {
        { ds_routes_chat, "{'messages': [{'role': 'user', 'content': 'q'}], 'stream': true}", "data: {\"error\":{\"message\":\"layer 3" },
        { ds_routes_messages, "{'max_tokens': 1, 'messages': [{'role': 'user', 'content': 'q'}], 'stream': true}",
          "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"layer 3" },
        { ds_routes_responses, "{'input': 'q', 'stream': true}", "event: response.failed\n" },
        { ds_routes_responses, "{'input': 'q'}", "{\"error\":{\"message\":\"layer 3" },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct ds_reply r;
        struct ds_bytes out;
        ds_bytes_init(&out, 1 << 20);
        call(&r, t[i].route, q(t[i].body));
        REQUIRE(r.request);
        r.api->error(r.ctx, 500, "layer 3 gave a NaN", &out);
        CHECK_MSG(out.n && strstr(out.p, t[i].want) == out.p, "%s\n--- expected\n%s", out.p, t[i].want);
        out.n = 0;
        r.api->keepalive(r.ctx, &out);
        CHECK(out.n > 0);
        ds_bytes_free(&out);
        chat_reply_free(&r);
    }
}

/* Tools and instructions can be long: streams have them once, at the end. */
static void long_fields_come_once(void)
{
    const char *got = answer_to(R, q("{" RBODY ", 'instructions': 'Be brief.', 'stream': true}"), "a", DS_FINISH_END);
    EXPECT_IN_ORDER(got, "response.created", "\"instructions\":null", "\"tools\":[]", "response.completed", "\"instructions\":\"Be brief.\"",
                    "\"tools\":[{\"type\"");
    CHECK(strstr(got, "Be brief.") && !strstr(strstr(got, "Be brief.") + 1, "Be brief."));
    EXPECT_IN_ORDER(answer_to(R, q("{" RBODY "}"), "a", DS_FINISH_END), "\"tools\":[{\"type\"");
}

static void nonce_is_taken_out(void)
{
    static const char want[] = SYSTEM "Be brief." END USER "q" END ASSISTANT CLOSED;
    EXPECT(MESSAGES(", 'system': [{'type': 'text', 'text': '" NONCE "'}, {'type': 'text', 'text': 'Be brief.'}]"), want);
    CHECK(strstr(noted, "nonce"));
    EXPECT(MESSAGES(", 'system': '" NONCE "\\nBe brief.'"), want);
    EXPECT(MESSAGES(", 'system': '" NONCE "'"), SYSTEM END USER "q" END ASSISTANT CLOSED);
    EXPECT(MESSAGES(", 'system': 'Say " NONCE "'"), SYSTEM "Say " NONCE END USER "q" END ASSISTANT CLOSED);
    CHECK(!noted[0]);
}

/* What an answer's request notes, counting its tokens does not note once more. */
static void counting_notes_nothing(void)
{
    static const char body[] = "{'max_tokens': 9, 'system': '" NONCE "', 'tools': [{'type': 'web', 'name': 'w'}],"
                               " 'messages': [{'role': 'user', 'content': 'q'}]}";
    for (int i = 0; i < 2; i++) {
        struct ds_reply r;
        call(&r, &ds_routes_messages[i], q(body));
        CHECK(!r.refusal.status && (noted[0] != 0) == (i == 0));
        chat_reply_free(&r);
    }
}

static const struct ds_test tests[] = {
    { "requests_become_one_prompt", requests_become_one_prompt },
    { "requests_turn_thinking_on_and_off", requests_turn_thinking_on_and_off },
    { "requests_force_calls", requests_force_calls },
    { "answers_of_chat", answers_of_chat },
    { "answers_of_messages", answers_of_messages },
    { "answers_of_responses", answers_of_responses },
    { "calls_without_results", calls_without_results },
    { "items_that_are_cut", items_that_are_cut },
    { "answers_that_fail", answers_that_fail },
    { "long_fields_come_once", long_fields_come_once },
    { "nonce_is_taken_out", nonce_is_taken_out },
    { "counting_notes_nothing", counting_notes_nothing },
};

int main(int argc, char **argv) { return chat_api_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv); }
