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

struct wrong { const struct ds_route *route; const char *param, *body; };

static void check_wrong(const struct wrong *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char body[1024], want[128];
        bool chat = t[i].route == ds_routes_chat, responses = t[i].route == ds_routes_responses;
        snprintf(body, sizeof body, "{%s, %s}", t[i].body, chat ? "'messages': [{'role': 'user', 'content': 'q'}]"
                 : responses ? "'input': 'q'" : "'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'q'}]");
        if (strstr(t[i].body, "'messages'") || strstr(t[i].body, "'input':"))
            snprintf(body, sizeof body, "{%s%s}", t[i].body, chat || responses ? "" : ", 'max_tokens': 9");
        const char *got = prompt_of(t[i].route, q(body));
        snprintf(want, sizeof want, "400 %s: ", t[i].param);
        CHECK_MSG(!strncmp(got, want, strlen(want)) && strstr(got + strlen(want), t[i].param), "%s\n--- gave\n%s", body, got);
    }
}
#define CHECK_WRONG(t) check_wrong(t, sizeof t / sizeof *t)

/* Every field has a type, a wrong one is refused by its name, in a sentence that has the name too. */
static void fields_of_chat(void)
{
#define C ds_routes_chat
#define ONE(m) "'messages': [{'role': 'user', 'content': 'q'}, " m "]"
#define CALLED(c) ONE("{'role': 'assistant', 'tool_calls': [" c "]}")
    static const struct wrong t[] = {
        { C, "messages", "'messages': []" }, { C, "messages", "'messages': {}" }, { C, "messages", "'messages': null" },
        { C, "messages[1]", ONE("5") }, { C, "messages[1].role", ONE("{}") }, { C, "messages[1].role", ONE("{'role': 5}") },
        { C, "messages[1].role", ONE("{'role': 'use'}") }, { C, "messages[1].content", ONE("{'role': 'user', 'content': 5}") },
        { C, "messages[1].content[0]", ONE("{'role': 'user', 'content': [5]}") },
        { C, "messages[1].content[0].type", ONE("{'role': 'user', 'content': [{'type': 5}]}") },
        { C, "messages[1].content[0].text", ONE("{'role': 'user', 'content': [{'type': 'text'}]}") },
        { C, "messages[1].content[0].text", ONE("{'role': 'user', 'content': [{'type': 'text', 'text': 5}]}") },
        { C, "messages[1].name", ONE("{'role': 'user', 'name': 'a\\u0000b'}") }, { C, "messages[1].name", ONE("{'role': 'user', 'name': 5}") },
        { C, "messages[1].tool_call_id", ONE("{'role': 'tool', 'tool_call_id': 5}") },
        { C, "messages[1].reasoning_content", ONE("{'role': 'assistant', 'reasoning_content': 5}") },
        { C, "messages[1].refusal", ONE("{'role': 'assistant', 'refusal': []}") },
        { C, "messages[1].function_call", ONE("{'role': 'assistant', 'function_call': {'name': 'f'}}") },
        { C, "messages[1].tool_calls", ONE("{'role': 'assistant', 'tool_calls': {}}") }, { C, "messages[1].tool_calls[0]", CALLED("5") },
        { C, "messages[1].tool_calls[0].id", CALLED("{'id': 5, 'function': {'name': 'f'}}") },
        { C, "messages[1].tool_calls[0].type", CALLED("{'type': 'custom', 'function': {'name': 'f'}}") },
        { C, "messages[1].tool_calls[0].function", CALLED("{'function': 'f'}") }, { C, "messages[1].tool_calls[0].function", CALLED("{}") },
        { C, "messages[1].tool_calls[0].function.name", CALLED("{'function': {'name': 'a\\u0000b'}}") },
        { C, "messages[1].tool_calls[0].function.name", CALLED("{'function': {'name': ''}}") },
        { C, "messages[1].tool_calls[0].function.arguments", CALLED("{'function': {'name': 'f', 'arguments': 5}}") },
        { C, "tools", "'tools': {}" }, { C, "tools[0]", "'tools': [5]" }, { C, "tools[0].type", "'tools': [{'type': 5}]" },
        { C, "tools[0].type", "'tools': [{'type': 'custom', 'custom': {'name': 'f'}}]" },
        { C, "tools[0].function", "'tools': [{'type': 'function'}]" }, { C, "tools[0].function.name", "'tools': [{'function': {}}]" },
        { C, "tools[0].function.name", "'tools': [{'function': {'name': 'a\\u0000'}}]" },
        { C, "tools[0].function.description", "'tools': [{'function': {'name': 'f', 'description': 5}}]" },
        { C, "tools[0].function.parameters", "'tools': [{'function': {'name': 'f', 'parameters': []}}]" },
        { C, "tools[0].function.strict", "'tools': [{'function': {'name': 'f', 'strict': 1}}]" },
        { C, "tool_choice", "'tool_choice': 5" }, { C, "tool_choice", "'tool_choice': 'some'" },
        { C, "tool_choice.type", "'tool_choice': {'type': 'allowed_tools'}" }, { C, "tool_choice.function", "'tool_choice': {'type': 'function'}" },
        { C, "tool_choice.function.name", "'tool_choice': {'type': 'function', 'function': {'name': 5}}" },
        { C, "parallel_tool_calls", "'parallel_tool_calls': 'no'" }, { C, "reasoning_effort", "'reasoning_effort': 5" },
        { C, "reasoning_effort", "'reasoning_effort': 'hi'" }, { C, "reasoning_effort", "'reasoning_effort': ''" },
        { C, "reasoning_effort", "'reasoning_effort': 'hard'" }, { C, "max_completion_tokens", "'max_completion_tokens': -1" },
        { C, "max_completion_tokens", "'max_completion_tokens': 99999999999999999999999" }, { C, "n", "'n': 18446744073709551616" },
        { C, "seed", "'seed': 9223372036854775808" }, { C, "seed", "'seed': -9223372036854775809" }, { C, "n", "'n': 1e999" },
        { C, "logprobs", "'logprobs': 3" }, { C, "top_logprobs", "'logprobs': true, 'top_logprobs': 21" }, { C, "top_logprobs", "'top_logprobs': 2" },
        { C, "stream_options", "'stream_options': true" }, { C, "stream_options.include_usage", "'stream_options': {'include_usage': 1}" },
        { C, "response_format", "'response_format': 'text'" }, { C, "response_format.type", "'response_format': {'type': 'json_object'}" },
        { C, "chat_template_kwargs", "'chat_template_kwargs': 5" },
        { C, "chat_template_kwargs.enable_thinking", "'chat_template_kwargs': {'enable_thinking': 'yes'}" },
        { C, "functions", "'functions': [{'name': 'f'}]" }, { C, "function_call", "'function_call': 'auto'" },
        { C, "modalities", "'modalities': ['text', 'audio']" }, { C, "modalities", "'modalities': 'text'" }, { C, "audio", "'audio': {'voice': 'x'}" },
        { C, "web_search_options", "'web_search_options': {'a': 1}" }, { C, "verbosity", "'verbosity': 'loud'" }, { C, "user", "'user': 5" },
        { C, "metadata", "'metadata': []" }, { C, "store", "'store': 'no'" }, { C, "service_tier", "'service_tier': 1" },
        { C, "logit_bias", "'logit_bias': {' 1': 1}" }, { C, "logit_bias", "'logit_bias': {'+1': 1}" }, { C, "logit_bias", "'logit_bias': {'1 ': 1}" },
        { C, "logit_bias", "'logit_bias': {'': 1}" }, { C, "logit_bias", "'logit_bias': {'01': 1}" }, { C, "logit_bias", "'logit_bias': {'-1': 1}" },
        { C, "audio", "'audio': false" }, { C, "audio", "'audio': {}" }, { C, "functions", "'functions': {}" }, { C, "functions", "'functions': false" },
        { C, "function_call", "'function_call': []" }, { C, "web_search_options", "'web_search_options': []" }, { C, "metadata.a", "'metadata': {'a': 5}" },
        { C, "messages[1].audio", ONE("{'role': 'assistant', 'content': 'a', 'audio': false}") },
        { C, "messages[1].content[0].cache_control", ONE("{'role': 'user', 'content': [{'type': 'text', 'text': 'a', 'cache_control': 5}]}") },
        { C, "stream_options.a", "'stream_options': {'a': 1e999}" }, { C, "x[1].y[0]", "'x': [{'z': [1, 2]}, {'y': [1e400]}]" },
        { C, "stop", "'stop': 'a\\u0000'" }, { C, "model", "'model': 'a\\u0000'" }, { C, "model", "'model': []" },
    };
    CHECK_WRONG(t);
}

static void fields_of_responses(void)
{
#define R ds_routes_responses
#define ITEM(i) "'input': ['x', " i "]"
    static const struct wrong t[] = {
        { R, "input", "'input': []" }, { R, "input", "'input': null" }, { R, "input", "'input': 5" }, { R, "input", "'input': {}" },
        { R, "input[0]", "'input': [5]" }, { R, "input[0].type", "'input': [{'type': 5}]" }, { R, "input[0].type", "'input': [{'type': 'image'}]" },
        { R, "input[0].type", "'input': [{'type': 'item_reference', 'id': 'x'}]" },
        { R, "input[0].role", "'input': [{'role': 'tool'}]" }, { R, "input[0].content", "'input': [{'role': 'user', 'content': 5}]" },
        { R, "input[0].content[0].type", "'input': [{'role': 'user', 'content': [{'type': 'input_image'}]}]" },
        { R, "input[0].name", "'input': [{'type': 'function_call', 'arguments': '{}'}]" },
        { R, "input[0].name", "'input': [{'type': 'function_call', 'name': 'a\\u0000', 'arguments': '{}'}]" },
        { R, "input[0].call_id", "'input': [{'type': 'function_call', 'name': 'f', 'call_id': 5}]" },
        { R, "input[0].id", "'input': [{'role': 'user', 'id': 5}]" }, { R, "input[0].status", "'input': [{'role': 'user', 'status': 5}]" },
        { R, "input[0].arguments", "'input': [{'type': 'function_call', 'name': 'f', 'arguments': 5}]" },
        { R, "input[0].input", "'input': [{'type': 'custom_tool_call', 'name': 'f', 'input': 5}]" },
        { R, "input[0].output", "'input': [{'type': 'function_call_output', 'output': 5}]" },
        { R, "input[0].summary", "'input': [{'type': 'reasoning', 'summary': 'x'}]" },
        { R, "input[0].content[0].text", "'input': [{'type': 'reasoning', 'content': [{'text': 5}]}]" },
        { R, "input[0].summary[0]", "'input': [{'type': 'reasoning', 'summary': ['x']}]" },
        { R, "input[0].summary[0].type", "'input': [{'type': 'reasoning', 'summary': [{'type': 'text', 'text': 'a'}]}]" },
        { R, "input[0].summary[0].type", "'input': [{'type': 'reasoning', 'summary': [{'type': 5}], 'content': [{'text': 'a'}]}]" },
        { R, "input[0].content[0].type", "'input': [{'type': 'reasoning', 'content': [{'type': 'output_text', 'text': 'a'}]}]" },
        { R, "input[0].content[1]", "'input': [{'type': 'reasoning', 'content': [{'type': 'reasoning_text', 'text': 'a'}, 5]}]" },
        { R, "input[0].encrypted_content", "'input': [{'type': 'reasoning', 'encrypted_content': 5}]" },
        { R, "input[0].content[0].annotations", "'input': [{'role': 'assistant', 'content': [{'type': 'output_text', 'text': 'a', 'annotations': 5}]}]" },
        { R, "previous_response_id", "'previous_response_id': false" }, { R, "previous_response_id", "'previous_response_id': []" },
        { R, "previous_response_id", "'previous_response_id': {}" }, { R, "conversation", "'conversation': false" },
        { R, "conversation", "'conversation': []" }, { R, "conversation", "'conversation': {}" }, { R, "background", "'background': []" },
        { R, "background", "'background': {}" }, { R, "prompt", "'prompt': false" }, { R, "prompt", "'prompt': []" }, { R, "prompt", "'prompt': {}" },
        { R, "metadata.a", "'metadata': {'a': []}" }, { R, "context_management", "'context_management': {}" },
        { R, "instructions", "'instructions': 5" }, { R, "max_output_tokens", "'max_output_tokens': 0" }, { R, "reasoning", "'reasoning': 'high'" },
        { R, "reasoning.effort", "'reasoning': {'effort': 'hard'}" }, { R, "reasoning.summary", "'reasoning': {'summary': 5}" },
        { R, "include", "'include': 'all'" }, { R, "include", "'include': [5]" }, { R, "include", "'include': ['message.output_text.logprobs']" },
        { R, "include", "'include': ['file_search_call']" }, { R, "include", "'include': ['']" }, { R, "truncation", "'truncation': 'some'" },
        { R, "truncation", "'truncation': true" }, { R, "top_logprobs", "'top_logprobs': 'x'" }, { R, "top_logprobs", "'top_logprobs': 21" },
        { R, "top_logprobs", "'top_logprobs': 2" }, { R, "previous_response_id", "'previous_response_id': 'x'" },
        { R, "conversation", "'conversation': 'x'" }, { R, "prompt", "'prompt': {'id': 'x'}" }, { R, "background", "'background': true" },
        { R, "text", "'text': 'x'" }, { R, "text.format", "'text': {'format': 'text'}" },
        { R, "text.format.type", "'text': {'format': {'type': 'json_schema'}}" }, { R, "text.verbosity", "'text': {'verbosity': 5}" },
        { R, "max_tool_calls", "'max_tool_calls': -1" }, { R, "store", "'store': 1" }, { R, "metadata", "'metadata': 'x'" },
        { R, "tools[0].name", "'tools': [{'type': 'namespace', 'tools': []}]" },
        { R, "tools[0].tools", "'tools': [{'type': 'namespace', 'name': 'a', 'tools': {}}]" },
        { R, "tools[0].tools[0].name", "'tools': [{'type': 'namespace', 'name': 'a', 'tools': [{'type': 'function'}]}]" },
        { R, "tools[0].tools[0].parameters", "'tools': [{'type': 'namespace', 'name': 'a', 'tools': [{'name': 'f', 'parameters': 5}]}]" },
        { R, "input[0].namespace", "'input': [{'type': 'function_call', 'name': 'f', 'namespace': 5}]" },
        { R, "tools", "'tools': 5" }, { R, "tools[0]", "'tools': ['f']" }, { R, "tools[0].type", "'tools': [{'type': 5}]" },
        { R, "tools[0].name", "'tools': [{'type': 'function'}]" }, { R, "tools[0].name", "'tools': [{'type': 'custom', 'name': ''}]" },
        { R, "tools[0].format.type", "'tools': [{'type': 'custom', 'name': 'p', 'format': {'type': 'xml'}}]" },
        { R, "tools[0].format", "'tools': [{'type': 'custom', 'name': 'p', 'format': 'text'}]" },
        { R, "tool_choice", "'tool_choice': 'x'" }, { R, "tool_choice", "'tool_choice': 5" },
        { R, "tool_choice.type", "'tool_choice': {'type': 'web_search'}" },
        { R, "tool_choice.name", "'tool_choice': {'type': 'function'}" }, { R, "stream", "'stream': 1" },
    };
    CHECK_WRONG(t);
    EXPECT(RESPONSES(", 'include': ['reasoning.encrypted_content'], 'truncation': 'auto', 'top_logprobs': 0, 'previous_response_id': null"),
           USER "q" END ASSISTANT "<think>\n");
}

static void fields_of_messages(void)
{
#define M ds_routes_messages
#define TURN(c) "'messages': [{'role': 'user', 'content': [" c "]}]"
    static const struct wrong t[] = {
        { M, "system[0].cache_control", "'system': [{'type': 'text', 'text': 'a', 'cache_control': 'x'}]" },
        { M, "system[0].cache_control", "'system': [{'type': 'text', 'text': '" NONCE "', 'cache_control': 'x'}]" },
        { M, "tools[0].cache_control", "'tools': [{'name': 'f', 'cache_control': []}]" },
        { M, "tools[0].cache_control", "'tools': [{'type': 'web_search_20250305', 'name': 'web_search', 'cache_control': 5}]" },
        { M, "context_management.edits", "'context_management': {'edits': {}}" }, { M, "context_management.edits[0]", "'context_management': {'edits': [5]}" },
        { M, "context_management.edits[0].type", "'context_management': {'edits': [{'type': 5}]}" }, { M, "container", "'container': false" },
        { M, "mcp_servers", "'mcp_servers': {}" }, { M, "output_format", "'output_format': []" },
        { M, "output_config.format", "'output_config': {'format': 5}" },
        { M, "messages", "'messages': []" }, { M, "messages[0]", "'messages': ['q']" }, { M, "messages[0].role", "'messages': [{'role': 'tool'}]" },
        { M, "messages[0].content", "'messages': [{'role': 'user', 'content': 5}]" }, { M, "messages[0].content[0]", TURN("5") },
        { M, "messages[0].content[0].type", TURN("{}") }, { M, "messages[0].content[0].type", TURN("{'type': 5}") },
        { M, "messages[0].content[0].type", TURN("{'type': 'image'}") }, { M, "messages[0].content[0].text", TURN("{'type': 'text'}") },
        { M, "messages[0].content[0].text", TURN("{'type': 'text', 'text': 5}") },
        { M, "messages[0].content[0].cache_control", TURN("{'type': 'text', 'text': '', 'cache_control': 5}") },
        { M, "messages[0].content[0].tool_use_id", TURN("{'type': 'tool_result', 'tool_use_id': 5}") },
        { M, "messages[0].content[0].is_error", TURN("{'type': 'tool_result', 'is_error': 'no'}") },
        { M, "messages[0].content[0].content", TURN("{'type': 'tool_result', 'content': 5}") },
        { M, "messages[0].content[0].content[0]", TURN("{'type': 'tool_result', 'content': [5]}") },
        { M, "messages[0].content[0].content[0].type", TURN("{'type': 'tool_result', 'content': [{'type': 'image'}]}") },
        { M, "messages[0].content[0].content[0].text", TURN("{'type': 'tool_result', 'content': [{'type': 'text', 'text': 5}]}") },
        { M, "messages[0].content[0].name", "'messages': [{'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 'x'}]}]" },
        { M, "messages[0].content[0].id", "'messages': [{'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 5, 'name': 'f'}]}]" },
        { M, "messages[0].content[0].input", "'messages': [{'role': 'assistant', 'content': [{'type': 'tool_use', 'name': 'f', 'input': 5}]}]" },
        { M, "messages[0].content[0].thinking", "'messages': [{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 5}]}]" },
        { M, "system", "'system': 5" }, { M, "system[0].text", "'system': [{'type': 'text', 'text': 5}]" }, { M, "system[0]", "'system': [5]" },
        { M, "thinking", "'thinking': true" }, { M, "thinking.type", "'thinking': {'type': 5}" }, { M, "thinking.type", "'thinking': {'type': 'on'}" },
        { M, "thinking.budget_tokens", "'thinking': {'type': 'enabled', 'budget_tokens': 'x'}" },
        { M, "thinking.budget_tokens", "'thinking': {'type': 'enabled', 'budget_tokens': -1}" },
        { M, "tools", "'tools': {}" }, { M, "tools[0]", "'tools': [5]" }, { M, "tools[0].name", "'tools': [{'input_schema': {}}]" },
        { M, "tools[0].name", "'tools': [{'name': 'a\\u0000', 'input_schema': {}}]" },
        { M, "tools[0].input_schema", "'tools': [{'name': 'f', 'input_schema': 5}]" },
        { M, "tools[0].description", "'tools': [{'name': 'f', 'description': 5, 'input_schema': {}}]" },
        { M, "tool_choice", "'tool_choice': 'auto'" }, { M, "tool_choice.type", "'tool_choice': {'type': 'x'}" },
        { M, "tool_choice.name", "'tool_choice': {'type': 'tool'}" }, { M, "tool_choice.name", "'tool_choice': {'type': 'auto', 'name': 5}" },
        { M, "tool_choice.disable_parallel_tool_use", "'tool_choice': {'type': 'auto', 'disable_parallel_tool_use': 1}" },
        { M, "metadata", "'metadata': 5" }, { M, "metadata.user_id", "'metadata': {'user_id': 5}" },
        { M, "mcp_servers", "'mcp_servers': [{'url': 'x'}]" },
        { M, "output_config.format", "'output_config': {'format': {'type': 'json_schema'}}" }, { M, "output_config.effort", "'output_config': {'effort': 5}" },
        { M, "stop_sequences", "'stop_sequences': [5]" }, { M, "temperature", "'temperature': 'hot'" }, { M, "top_k", "'top_k': 1.5" },
    };
    CHECK_WRONG(t);
    struct ds_reply r;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {     /* counted by the same rules */
        char body[1024];
        if (!strcmp(t[i].param, "stop_sequences")) continue;
        snprintf(body, sizeof body, "{%s%s}", t[i].body, strstr(t[i].body, "'messages'") ? "" : ", 'messages': [{'role': 'user', 'content': 'q'}]");
        call(&r, ds_routes_messages + 1, q(body));
        CHECK_MSG(r.refusal.status == 400 && !strcmp(r.refusal.param, t[i].param), "%s gave %d %s", body, r.refusal.status, r.refusal.param);
        chat_reply_free(&r);
    }
}

/* Whole numbers that 64 bits do not hold are numbers all the same: where no field is meant, they are as near as doubles are. */
static void numbers_of_any_length(void)
{
    static const char call[] = "{'max_tokens': 9, 'messages': [{'role': 'assistant', 'content': [{'type': 'tool_use', 'name': 'f',"
        " 'input': {'a': 9223372036854775807, 'b': 9223372036854775808, 'c': -18446744073709551616, 'd': -9223372036854775808}}]},"
        " {'role': 'user', 'content': 'q'}]}";
    EXPECT_IN_ORDER(prompt_of(ds_routes_messages, q(call)), "9223372036854775807\n", "9.22337203685477e+18\n", "-1.844674407370955e+19\n",
                    "-9223372036854775808\n");
    EXPECT(CHAT(", 'n': 100000000000000000000"), "400 n: 'n' is 1e+20, expected 1 to 128");
    EXPECT(CHAT(", 'future': [100000000000000000000]"), USER "q" END ASSISTANT "<think>\n");
    EXPECT(CHAT(", 'n': -1e999"), "400 n: 'n' holds the number -1e999, which is out of every range");
}

/* Agents send turns that hold results of tools alone, as the first that is left after a compaction too. */
static void results_of_tools_alone(void)
{
    static const char want[] = USER "<tool_response>\n19\n</tool_response>" END ASSISTANT CLOSED;
    static const char loop[] = ASSISTANT "<think>\nhm\n</think>\n\n" CALL END USER "<tool_response>\n19\n</tool_response>" END ASSISTANT CLOSED;
#define RESULT "{'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'x', 'content': '19'}]}"
    EXPECT(prompt_of(ds_routes_messages, q("{'max_tokens': 9, 'messages': [" RESULT "]}")), want);
    EXPECT(prompt_of(ds_routes_messages, q("{'max_tokens': 9, 'messages': [{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 'hm'},"
                                           " {'type': 'tool_use', 'id': 'x', 'name': 'f', 'input': {'a': 3}}]}, " RESULT "]}")), loop);
    EXPECT(prompt_of(ds_routes_responses, q("{'reasoning': {'effort': 'none'}, 'input': [{'type': 'function_call_output', 'call_id': 'x', 'output': '19'}]}")),
           want);
    EXPECT(prompt_of(ds_routes_chat, q("{'reasoning_effort': 'none', 'messages': [{'role': 'tool', 'content': '19'}]}")), want);
    EXPECT(prompt_of(ds_routes_chat, q("{'messages': [{'role': 'assistant', 'content': 'a'}]}")),
           "400 messages: a chat needs at least one message of the user, or a tool's result");
}

/* What a forced call begins with is part of the answer: when no call comes of it, the client gets every byte. */
static void forced_calls_that_fail(void)
{
    static const char body[] = "{'messages': [{'role': 'user', 'content': 'q'}], " TOOL ", 'tool_choice': %s}";
    static const struct { const char *choice, *pieces, *want; enum ds_finish why; } t[] = {
        { "'required'", "no|thing", "<tool_call>\\n<function=nothing", DS_FINISH_END },
        { "'required'", "f>\n<para", "<tool_call>\\n<function=f>\\n<para", DS_FINISH_LENGTH },
        { "{'type': 'function', 'function': {'name': 'f'}}", "no|thing", "<tool_call>\\n<function=f>\\nnothing", DS_FINISH_END },
        { "{'type': 'function', 'function': {'name': 'f'}}", "", "<tool_call>\\n<function=f>\\n", DS_FINISH_LENGTH },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char text[1024], want[128];
        snprintf(text, sizeof text, body, t[i].choice);
        snprintf(want, sizeof want, "\"content\":\"%s\"", t[i].want);
        EXPECT_IN_ORDER(answer_to(ds_routes_chat, q(text), t[i].pieces, t[i].why), want);
    }
    EXPECT_IN_ORDER(answer_to(ds_routes_messages, q("{'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'q'}], 'tools': [{'name': 'f',"
                              " 'input_schema': " SCHEMA "}], 'tool_choice': {'type': 'any'}}"), "x y", DS_FINISH_END),
                    "\"text\":\"<tool_call>\\n<function=x y\"", "\"end_turn\"");
    EXPECT_IN_ORDER(answer_to(ds_routes_chat, q("{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'ab'}]}"), "cd",
                              DS_FINISH_END), "\"content\":\"cd\"");       /* a beginning that the client gave is not told back */
}

/* Items of tools that others run: a session that began elsewhere goes on, and the model sees what was done there. */
static void items_of_other_tools(void)
{
#define INPUT(items) prompt_of(R, q("{'reasoning': {'effort': 'none'}, 'input': [{'role': 'user', 'content': 'q'}, " items "]}"))
#define SAID(text) USER "q" END ASSISTANT CLOSED text
    static const char *const calls[] = { "web_search_call", "local_shell_call", "shell_call", "apply_patch_call", "image_generation_call",
                                         "tool_search_call", "file_search_call", "mcp_approval_request", "next_years_call" };
    static const char *const notes[] = { "compaction", "ghost_snapshot", "mcp_list_tools", "next_years_note" };
    char body[512], want[512];
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        snprintf(body, sizeof body, "{'reasoning': {'effort': 'none'}, 'input': [{'role': 'user', 'content': 'q'}, {'type': '%s', 'id': 'x',"
                 " 'action': {'a': 1}}, {'role': 'assistant', 'content': 'Well'}, {'role': 'user', 'content': 'r'}]}", calls[i]);
        snprintf(want, sizeof want, USER "q" END ASSISTANT "{\"type\": \"%s\", \"id\": \"x\", \"action\": {\"a\": 1}}\n\nWell" END
                 USER "r" END ASSISTANT CLOSED, calls[i]);
        EXPECT(prompt_of(R, q(body)), want);
    }
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        snprintf(body, sizeof body, "{'reasoning': {'effort': 'none'}, 'input': [{'role': 'user', 'content': 'q'}, {'type': '%s',"
                 " 'encrypted_content': 'gAAA'}]}", notes[i]);
        snprintf(want, sizeof want, USER "q" END USER "<system-reminder>\n{\"type\": \"%s\"}\n</system-reminder>" END ASSISTANT CLOSED, notes[i]);
        EXPECT(prompt_of(R, q(body)), want);
    }
    EXPECT_IN_ORDER(INPUT("{'role': 'assistant', 'content': 'Hm.'}, {'type': 'shell_call', 'call_id': 'x', 'action': {'commands': ['ls']}},"
                          " {'type': 'shell_call_output', 'call_id': 'x', 'output': [{'stdout': 'a', 'stderr': ''}]}"),
                    "Hm.\n\n{\"type\": \"shell_call\"", "{\"commands\": [\"ls\"]}", END USER "<tool_response>\n{\"type\": \"shell_call_output\"",
                    "\"stdout\": \"a\"", "\n</tool_response>" END ASSISTANT CLOSED);
    EXPECT_IN_ORDER(INPUT("{'type': 'local_shell_call', 'call_id': 'x'}, {'type': 'local_shell_call_output', 'call_id': 'x', 'output': 'a b'}"),
                    END USER "<tool_response>\na b\n</tool_response>");
    CHECK(!strstr(INPUT("{'type': 'image_generation_call', 'id': 'x', 'result': 'AAAA'}"), "AAAA"));
    EXPECT(INPUT("{'type': 'item_reference', 'id': 'x'}"),
           "400 input[1].type: 'input[1].type' is 'item_reference', but nothing is kept here: send the item itself");
    EXPECT_IN_ORDER(INPUT("{'type': 'computer_call_output', 'output': {'type': 'computer_screenshot'}}"), "400 input[1].type: ", "only text is read here");
    EXPECT_IN_ORDER(INPUT("{'type': 'input_text', 'text': 'q'}"), "400 input[1].type: ", "a part of a message and no item");
}

/* Tools with free text, as Codex patches files: a function with one string for the model, items of their own for the client. */
static void custom_tools_of_responses(void)
{
#define CUSTOM "'tools': [{'type': 'custom', 'name': 'patch', 'description': 'Edits.', 'format': {'type': 'grammar', 'syntax': 'lark',"   \
               " 'definition': 'start: x'}}]"
    EXPECT_IN_ORDER(prompt_of(R, q("{" CUSTOM ", 'input': ['x']}")), "400 input[0]: ");
    EXPECT_IN_ORDER(prompt_of(R, q("{" CUSTOM ", 'input': [{'role': 'user', 'content': 'q'}, {'type': 'custom_tool_call', 'call_id': 'x',"
                                   " 'name': 'patch', 'input': '*** a\\n'}, {'type': 'custom_tool_call_output', 'call_id': 'x', 'output': 'ok'}]}")),
                    "\"name\": \"patch\", \"description\": \"Edits.\\n\\nThe input follows this lark grammar:\\nstart: x\"",
                    "{\"input\": {\"type\": \"string\"}}", "\"required\": [\"input\"]", "<function=patch>\n<parameter=input>\n*** a\n\n</parameter>",
                    "<tool_response>\nok\n");
    static const char answer[] = "</think><tool_call>\n<function=patch>\n<parameter=input>\n*** \"a\"\n+b\n</parameter>\n</function>\n</tool_call>";
    EXPECT_IN_ORDER(answer_to(R, q("{" CUSTOM ", 'input': 'q'}"), answer, DS_FINISH_END),
                    "\"type\":\"custom_tool_call\",\"status\":\"completed\",\"call_id\":\"call_#\",\"name\":\"patch\","
                    "\"input\":\"*** \\\"a\\\"\\n+b\"}");
    EXPECT_IN_ORDER(answer_to(R, q("{" CUSTOM ", 'stream': true, 'tool_choice': {'type': 'custom', 'name': 'patch'}, 'input': 'q'}"),
                              "<parameter=input>\n*** \"a\"\n+b\n</parameter>\n</function>\n</tool_call>", DS_FINISH_END),
                    "event: response.output_item.added\n", "\"type\":\"custom_tool_call\",\"status\":\"in_progress\"", "\"input\":\"\"",
                    "event: response.custom_tool_call_input.delta\n", "event: response.custom_tool_call_input.done\n",
                    "\"input\":\"*** \\\"a\\\"\\n+b\"", "event: response.output_item.done\n",
                    "\"tool_choice\":{\"type\":\"custom\",\"name\":\"patch\"}");
}

/* The model sees the tools of a namespace one by one, the client gets its calls by namespace and name. */
static void tools_in_namespaces(void)
{
#define SPACES "'tools': [{'type': 'namespace', 'name': 'crm', 'description': 'x', 'tools': [{'type': 'function', 'name': 'f', 'parameters': " SCHEMA   \
               "}, {'type': 'custom', 'name': 'patch'}]}, {'type': 'function', 'name': 'f', 'parameters': " SCHEMA "}]"
    static const char call[] = "</think><tool_call>\n<function=crm.f>\n<parameter=a>\n3\n</parameter>\n</function>\n</tool_call>";
    EXPECT_IN_ORDER(prompt_of(R, q("{" SPACES ", 'input': [{'role': 'user', 'content': 'q'}, {'type': 'function_call', 'namespace': 'crm', 'name': 'f',"
                                   " 'call_id': 'x', 'arguments': '{}'}, {'type': 'function_call_output', 'call_id': 'x', 'output': '1'}]}")),
                    "\"name\": \"crm.f\"", "\"name\": \"crm.patch\"", "\"name\": \"f\"", "<tool_call>\n<function=crm.f>\n");
    EXPECT_IN_ORDER(answer_to(R, q("{" SPACES ", 'input': 'q'}"), call, DS_FINISH_END),
                    "\"type\":\"function_call\"", "\"name\":\"f\",\"namespace\":\"crm\",\"arguments\":\"{\\\"a\\\": 3}\"");
    EXPECT_IN_ORDER(answer_to(R, q("{" SPACES ", 'input': 'q', 'stream': true}"), call, DS_FINISH_END), "output_item.added",
                    "\"name\":\"f\",\"namespace\":\"crm\",\"arguments\":\"\"", "arguments.done", "\"name\":\"f\",\"arguments\":\"{",
                    "output_item.done", "\"namespace\":\"crm\"");
    EXPECT_IN_ORDER(answer_to(R, q("{" SPACES ", 'input': 'q'}"), "</think><tool_call>\n<function=crm.patch>\n<parameter=input>\nx\n</parameter>\n"
                              "</function>\n</tool_call>", DS_FINISH_END),
                    "\"type\":\"custom_tool_call\"", "\"name\":\"patch\",\"namespace\":\"crm\",\"input\":\"x\"");
    CHECK(!strstr(answer_to(R, q("{" SPACES ", 'input': 'q'}"), "</think>" CALL, DS_FINISH_END), "\"namespace\":\"crm\",\"arguments\""));
}

/* Of the tools that clients of Messages run without a schema of their own, the shell's is known. */
static void tools_without_schema(void)
{
#define BARE "{'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'q'}], 'tools': [{'type': 'bash_20250124', 'name': 'bash'}, "                 \
             "{'type': 'text_editor_20250728', 'name': 'str_replace_based_edit_tool'}]}"
    const char *got = prompt_of(M, q(BARE));
    EXPECT_IN_ORDER(got, "\"name\": \"bash\"", "\"command\": {\"type\": \"string\"", "\"restart\": {\"type\": \"boolean\"");
    CHECK(!strstr(got, "str_replace_based") && strstr(noted, "'text_editor_20250728' is left out"));
    EXPECT_IN_ORDER(answer_to(M, q(BARE), "<tool_call>\n<function=bash>\n<parameter=command>\nls 1\n</parameter>\n</function>\n</tool_call>", DS_FINISH_END),
                    "\"type\":\"tool_use\"", "\"name\":\"bash\",\"input\":{\"command\": \"ls 1\"}");
}

/* A stream tells a call's texts while they are written; what a limit cuts never looks whole. */
static void calls_in_parts(void)
{
#define WRITE "'parameters': {'properties': {'t': {'type': 'string'}}}"
    static const char chat[] = "{'messages': [{'role': 'user', 'content': 'q'}], 'stream': true, 'tools': [{'function': {'name': 'w', " WRITE "}}]}";
    static const char messages[] = "{'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'q'}], 'stream': true, 'tools': [{'name': 'w',"
                                   " 'input_schema': {'properties': {'t': {'type': 'string'}}}}]}";
    static const char responses[] = "{'input': 'q', 'stream': true, 'tools': [{'type': 'function', 'name': 'w', " WRITE "}]}";
    static const char begun[] = "</think><tool_call>\n<function=w>\n<parameter=t>\n|one \"1\"|\ntwo|", end[] = "\n</parameter>\n</function>\n</tool_call>";
    char whole[256];
    snprintf(whole, sizeof whole, "%s%s", begun, end);
    EXPECT_IN_ORDER(answer_to(C, q(chat), whole, DS_FINISH_END), "\"name\":\"w\",\"arguments\":\"\"}", "{\"arguments\":\"{\\\"t\\\": \\\"\"}",
                    "{\"arguments\":\"one \\\\\\\"1\\\\\\\"\"}", "{\"arguments\":\"\\\\ntwo\"}", "{\"arguments\":\"\\\"}\"}",
                    "\"finish_reason\":\"tool_calls\"");
    const char *cut = answer_to(C, q(chat), begun, DS_FINISH_LENGTH);
    EXPECT_IN_ORDER(cut, "\"name\":\"w\"", "{\"arguments\":\"\\\\ntwo\"}", "\"finish_reason\":\"length\"");
    CHECK(!strstr(cut, "\\\"}\"}") && !strstr(cut, "\"content\":\"<tool"));
    EXPECT_IN_ORDER(answer_to(M, q(messages), whole, DS_FINISH_END), "\"type\":\"tool_use\"", "\"partial_json\":\"{\\\"t\\\": \\\"\"",
                    "\"partial_json\":\"one \\\\\\\"1", "\"partial_json\":\"\\\"}\"", "content_block_stop", "\"stop_reason\":\"tool_use\"");
    EXPECT_IN_ORDER(answer_to(M, q(messages), begun, DS_FINISH_LENGTH), "\"partial_json\":\"\\\\ntwo\"", "content_block_stop",
                    "\"stop_reason\":\"max_tokens\"");
    EXPECT_IN_ORDER(answer_to(R, q(responses), whole, DS_FINISH_END), "\"delta\":\"{\\\"t\\\": \\\"\"", "\"delta\":\"one \\\\\\\"1",
                    "\"delta\":\"\\\\ntwo\"", "function_call_arguments.done", "\"arguments\":\"{\\\"t\\\": \\\"one \\\\\\\"1\\\\\\\"\\\\ntwo\\\"}\"",
                    "response.completed", "\"type\":\"function_call\"");
    cut = answer_to(R, q(responses), begun, DS_FINISH_LENGTH);
    EXPECT_IN_ORDER(cut, "\"delta\":\"\\\\ntwo\"", "response.incomplete", "\"output\":[]");
    CHECK(!strstr(cut, "arguments.done") && !strstr(cut, "output_item.done"));
}

/* The text of a custom tool is unwrapped while it comes, wherever it is split. */
static void custom_tools_in_parts(void)
{
    static const char call[] = "</think><tool_call>\n<function=patch>\n<parameter=input>\n"
                               "*** \"a\\b\"\t\001\n+caf\u00e9\n</parameter>\n</function>\n</tool_call>";
    char pieces[512];
    for (size_t step = 1; step < 12; step++) {
        size_t n = 0;
        for (size_t i = 0; call[i]; i++) {
            if (i && i % step == 0 && ((unsigned char)call[i] & 0xC0) != 0x80) pieces[n++] = '|';
            pieces[n++] = call[i];
        }
        pieces[n] = 0;
        const char *got = answer_to(R, q("{" CUSTOM ", 'input': 'q', 'stream': true}"), pieces, DS_FINISH_END);
        EXPECT_IN_ORDER(got, "custom_tool_call_input.delta", "custom_tool_call_input.done", "\"input\":\"*** \\\"a\\\\b\\\"\\t\\u0001\\n+caf\u00e9\"}",
                        "output_item.done");
        CHECK(step > 3 || strstr(strstr(got, "input.delta") + 60, "input.delta"));
    }
    EXPECT_IN_ORDER(answer_to(R, q("{" CUSTOM ", 'input': 'q'}"), "</think><tool_call>\n<function=patch>\n<parameter=file>\nx\n"
                              "</parameter>\n</function>\n</tool_call>", DS_FINISH_END), "\"input\":\"{\\\"file\\\": \\\"x\\\"}\"");
    const char *cut = answer_to(R, q("{" CUSTOM ", 'input': 'q', 'stream': true}"), "</think>"
                                "<tool_call>\n<function=patch>\n<parameter=input>\n*** a", DS_FINISH_LENGTH);
    CHECK(strstr(cut, "\"delta\":\"*** a\"") && !strstr(cut, "input.done") && !strstr(cut, "output_item.done"));
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

/* To the last token: where not one more has room there is no answer to give, in any API, but tokens can be counted. */
static void prompts_that_fill_the_window(void)
{
    static const struct { const struct ds_route *route; const char *head, *tail; } t[] = {
        { ds_routes_chat, "{'messages': [{'role': 'user', 'content': '", "'}]}" },
        { ds_routes_messages, "{'max_tokens': 5, 'messages': [{'role': 'user', 'content': '", "'}]}" },
        { ds_routes_responses, "{'input': '", "'}" }, { ds_routes_completions, "{'prompt': '", "'}" },
        { ds_routes_completions, "{'max_tokens': 0, 'prompt': '", "'}" },
        { ds_routes_chat, "{'max_tokens': 0, 'messages': [{'role': 'user', 'content': '", "'}]}" },
    };
    static char body[8192];
    struct ds_reply r;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        snprintf(body, sizeof body, "%s%s%s", q(t[i].head), "xx", q(t[i].tail));
        call(&r, t[i].route, body);
        REQUIRE(r.request && !r.refusal.status);
        size_t around = r.request->prompt.n - 2, needs = i < 4;
        chat_reply_free(&r);
        for (size_t n = 4094; n <= 4097; n++) {
            snprintf(body, sizeof body, "%s%0*d%s", q(t[i].head), (int)(n - around), 0, q(t[i].tail));
            call(&r, t[i].route, body);
            CHECK_MSG((r.refusal.status == 400) == (n + needs > 4096), "%s: %zu tokens gave %d", t[i].head, n, r.refusal.status);
            CHECK(!r.refusal.status || (r.refusal.code && !strcmp(r.refusal.code, "context_length_exceeded")));
            if (n == 4096 && needs) CHECK(strstr(r.refusal.msg, "prompt is too long: 4096 tokens > 4095 maximum, as an answer needs room"));
            chat_reply_free(&r);
        }
    }
}

/* A request's words in a refusal make no new line in a log. */
static void refusals_are_one_line(void)
{
    EXPECT(prompt_of(ds_routes_chat, q("{'messages': [{'role': 'a\\nb\\u0007', 'content': ''}]}")),
           "400 messages[0].role: 'messages[0].role' is 'a?b?', expected system, developer, user, assistant, tool or function");
    EXPECT(prompt_of(ds_routes_chat, q("{'messages': [{'role': 'user', 'content': [{'type': 'x\\r\\ny'}]}]}")),
           "400 messages[0].content[0].type: 'messages[0].content[0].type' is 'x??y': only text is read here");
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
    { "items_that_are_cut", items_that_are_cut },
    { "answers_that_fail", answers_that_fail },
    { "nonce_is_taken_out", nonce_is_taken_out },
    { "fields_of_chat", fields_of_chat },
    { "fields_of_responses", fields_of_responses },
    { "fields_of_messages", fields_of_messages },
    { "numbers_of_any_length", numbers_of_any_length },
    { "results_of_tools_alone", results_of_tools_alone },
    { "forced_calls_that_fail", forced_calls_that_fail },
    { "items_of_other_tools", items_of_other_tools },
    { "custom_tools_of_responses", custom_tools_of_responses },
    { "tools_in_namespaces", tools_in_namespaces },
    { "tools_without_schema", tools_without_schema },
    { "calls_in_parts", calls_in_parts },
    { "custom_tools_in_parts", custom_tools_in_parts },
    { "long_fields_come_once", long_fields_come_once },
    { "counting_notes_nothing", counting_notes_nothing },
    { "refusals_are_one_line", refusals_are_one_line },
    { "prompts_past_the_window", prompts_past_the_window },
    { "prompts_that_fill_the_window", prompts_that_fill_the_window },
};

int main(int argc, char **argv)
{
    if (!chat_engine(&g, STAND_IN_QWEN36, 4096)) return 1;
    int code = ds_test_main(tests, (int)(sizeof tests / sizeof *tests), argc, argv);
    chat_engine_drop(&g);
    return code;
}
