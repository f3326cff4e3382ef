/* The chat APIs without HTTP and without a model: what a request becomes as a prompt, and what each API makes of an answer that
 * is made up here. The answers that a model really gives are tested through the official clients (tests/server/clients.py). */
#include "../chat_engine.h"

#include "../harness.h"

#include <ctype.h>

static struct ds_engine g;
static char noted[256];

static void note(const struct ds_call *c, const char *sentence)
{
    (void)c;
    snprintf(noted, sizeof noted, "%s", sentence);
}

static void expect(int line, const char *got, const char *want)
{
    CHECK_MSG(!strcmp(got, want), "line %d:\n%s\n--- expected\n%s", line, got, want);
}
#define EXPECT(got, want) expect(__LINE__, got, want)

static void call(struct ds_reply *r, const struct ds_route *route, const char *body)
{
    static const struct ds_server_options options = { .port = 0 };
    noted[0] = 0;
    chat_call(r, &g, &options, route, body, strlen(body), note);
}

/* The prompt's text, or the refusal. */
static const char *prompt_of(const struct ds_route *route, const char *body)
{
    static char text[8192];
    struct ds_reply r;
    size_t n = 0;
    call(&r, route, body);
    if (!r.request || r.refusal.status) snprintf(text, sizeof text, "%d %s: %s", r.refusal.status, r.refusal.param, r.refusal.msg);
    for (size_t i = 0; r.request && !r.refusal.status && i < r.request->prompt.n; i++) {
        const char *p;
        size_t len = ds_token_bytes(&g, r.request->prompt.p[i], &p);
        if (n + len + 1 > sizeof text) break;
        memcpy(text + n, p, len);
        text[n += len] = 0;
    }
    chat_reply_free(&r);
    return text;
}

/* What the client gets for an answer that comes in pieces, split at "|"; ids of our own making become ID. */
static const char *answer_to(const struct ds_route *route, const char *body, const char *pieces, enum ds_finish why)
{
    static char text[16384];
    struct ds_reply r;
    struct ds_bytes out;
    call(&r, route, body);
    ds_bytes_init(&out, 1 << 20);
    text[0] = 0;
    if (r.refusal.status || !r.request) {
        snprintf(text, sizeof text, "%s", r.refusal.msg);
        chat_reply_free(&r);
        return text;
    }
    struct ds_started started = { .prompt = 10, .cached = 4 };
    r.api->begin(r.ctx, &out);
    r.api->started(r.ctx, &started, &out);
    for (const char *p = pieces; *p;) {
        size_t n = strcspn(p, "|");
        struct ds_piece piece = { .text = p, .n = n, .id = 'a' };
        if (!r.api->piece(r.ctx, &piece, &out)) break;
        p += n + (p[n] == '|');
    }
    struct ds_ending ending = { .reason = why, .stop = why == DS_FINISH_STOP ? "END" : NULL, .prompt = 10, .cached = 4, .completion = 5 };
    r.api->finish(r.ctx, &ending, &out);
    size_t n = 0;
    for (size_t i = 0; i < out.n && n + 8 < sizeof text;) {
        size_t digits = 0;
        while (i + digits < out.n && isxdigit((unsigned char)out.p[i + digits])) digits++;
        if (digits < 10) {
            text[n++] = out.p[i++];
            continue;
        }
        text[n++] = '#';
        i += digits;
    }
    text[n] = 0;
    ds_bytes_free(&out);
    chat_reply_free(&r);
    return text;
}

/* Is each of the texts there, one after the other? */
static void expect_in_order(int line, const char *got, const char *const *want)
{
    const char *at = got;
    for (; *want; want++) {
        const char *found = strstr(at, *want);
        CHECK_MSG(found, "line %d: no %s from here on:\n%s\n--- in\n%s", line, *want, at, got);
        if (!found) return;
        at = found + strlen(*want);
    }
}
#define EXPECT_IN_ORDER(got, ...) expect_in_order(__LINE__, got, (const char *const[]){ __VA_ARGS__, NULL })

#define SYSTEM "<|im_start|>system\n"
#define USER "<|im_start|>user\n"
#define ASSISTANT "<|im_start|>assistant\n"
#define END "<|im_end|>\n"
#define CLOSED "<think>\n\n</think>\n\n"
#define TOOLS STAND_IN_HEAD "\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "      \
              "\"properties\": {\"a\": {\"type\": \"integer\"}}}}}\n</tools>" STAND_IN_TAIL
#define SCHEMA "{'type': 'object', 'properties': {'a': {'type': 'integer'}}}"
#define CALL "<tool_call>\n<function=f>\n<parameter=a>\n3\n</parameter>\n</function>\n</tool_call>"

/* JSON with ' for ". */
static const char *q(const char *s)
{
    static char out[4][4096];
    static int k;
    char *d = out[k = (k + 1) % 4];
    snprintf(d, sizeof out[0], "%s", s);
    for (char *p = d; *p; p++) if (*p == '\'') *p = '"';
    return d;
}

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
#define CHAT(more) prompt_of(ds_routes_chat, q("{'messages': [{'role': 'user', 'content': 'q'}]" more "}"))
#define MESSAGES(more) prompt_of(ds_routes_messages, q("{'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'q'}]" more "}"))
#define RESPONSES(more) prompt_of(ds_routes_responses, q("{'input': 'q'" more "}"))
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
#define TOOL "'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': " SCHEMA "}}]"
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
    EXPECT_IN_ORDER(answer_to(ds_routes_responses, q("{" RBODY "}"), "</think>a", DS_FINISH_LENGTH),
                    "\"status\":\"incomplete\"", "\"incomplete_details\":{\"reason\":\"max_output_tokens\"}");
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

static void nonce_is_taken_out(void)
{
#define NONCE "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=eb6c6;"
    static const char want[] = SYSTEM "Be brief." END USER "q" END ASSISTANT CLOSED;
    EXPECT(MESSAGES(", 'system': [{'type': 'text', 'text': '" NONCE "'}, {'type': 'text', 'text': 'Be brief.'}]"), want);
    CHECK(strstr(noted, "nonce"));
    EXPECT(MESSAGES(", 'system': '" NONCE "\\nBe brief.'"), want);
    EXPECT(MESSAGES(", 'system': '" NONCE "'"), SYSTEM END USER "q" END ASSISTANT CLOSED);
    EXPECT(MESSAGES(", 'system': 'Say " NONCE "'"), SYSTEM "Say " NONCE END USER "q" END ASSISTANT CLOSED);
    CHECK(!noted[0]);
}

/* A request's words in a refusal make no new line in a log. */
static void refusals_are_one_line(void)
{
    EXPECT(prompt_of(ds_routes_chat, q("{'messages': [{'role': 'a\\nb\\u0007', 'content': ''}]}")),
           "400 messages[0]: 'messages[0].role' is 'a?b?', expected system, developer, user, assistant or tool");
    EXPECT(prompt_of(ds_routes_chat, q("{'messages': [{'role': 'user', 'content': [{'type': 'x\\r\\ny'}]}]}")),
           "400 messages[0].content: 'messages[0].content' holds a part of type 'x??y': only text is read here");
}

static void prompts_past_the_window(void)
{
    static char body[8192];
    snprintf(body, sizeof body, "{\"max_tokens\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"%05000d\"}]}", 0);
    EXPECT(prompt_of(ds_routes_chat, body), "400 messages: prompt is too long: 5021 tokens > 4096 maximum, which is the window");
    EXPECT(prompt_of(ds_routes_messages, body), "400 messages: prompt is too long: 5025 tokens > 4096 maximum, which is the window");
    struct ds_reply r;
    call(&r, ds_routes_messages + 1, body);
    EXPECT(r.body.n ? r.body.p : "", "{\"input_tokens\":5025}\n");
    chat_reply_free(&r);
}

static const struct ds_test tests[] = {
    { "requests_become_one_prompt", requests_become_one_prompt },
    { "requests_turn_thinking_on_and_off", requests_turn_thinking_on_and_off },
    { "requests_force_calls", requests_force_calls },
    { "answers_of_chat", answers_of_chat },
    { "answers_of_messages", answers_of_messages },
    { "answers_of_responses", answers_of_responses },
    { "answers_that_fail", answers_that_fail },
    { "nonce_is_taken_out", nonce_is_taken_out },
    { "refusals_are_one_line", refusals_are_one_line },
    { "prompts_past_the_window", prompts_past_the_window },
};

int main(int argc, char **argv)
{
    if (!chat_engine(&g, STAND_IN_QWEN36, 4096)) return 1;
    int code = ds_test_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv);
    chat_engine_drop(&g);
    return code;
}
